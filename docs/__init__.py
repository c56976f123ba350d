"""The documentation: pages in Markdown, and what makes the page of commands."""
