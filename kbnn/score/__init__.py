"""Scores, curves, summaries and verdicts on forecasts; `scorecard.Scorecard` keeps them all."""
