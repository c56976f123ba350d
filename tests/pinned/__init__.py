"""Behaviour that is meant to stay, pinned to the digit.

Kernel and twin are held against each other elsewhere, and both against quadrature: neither notices
a formula that was changed alike in both, and a little. Here the numbers themselves are written
down. A change of formula must be stated by writing the file anew,

    python -m tests.pinned

and the diff of tests/fixtures/pinned.json shows what moved.

Rows are made by a generator of our own, so that no library's random stream is part of the numbers;
cases are short, so that no rounding of another instruction set or matrix library grows into a digit
that is compared.
"""
