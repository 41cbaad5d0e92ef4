"""`python -m rocade_kernels build|info`."""

import sys

from rocade_kernels.build._cli import main

sys.exit(main())
