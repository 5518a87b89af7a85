"""`python -m isthmus`: the same as the `isthmus` command."""

import sys

from isthmus.cli.main import main

sys.exit(main())
