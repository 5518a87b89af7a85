"""Names that other kernel libraries look for beside the language: `libdevice`."""
