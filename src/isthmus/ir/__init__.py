"""The program as data: values, operations, op tables, verifier, printer, parser, interpreter."""
