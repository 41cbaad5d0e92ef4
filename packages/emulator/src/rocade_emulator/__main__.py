"""`python -m rocade_emulator` is the command `rocade-emulator`."""

import sys

from rocade_emulator._cli import main

sys.exit(main())
