"""`python -m rocade` is the command `rocade`."""

import sys

from rocade.cli import main

sys.exit(main())
