"""`python -m unslow.serve.gateway`: one worker, told what to do by the first line of stdin."""

import sys

from unslow.serve.gateway.worker import main

if __name__ == "__main__":
    sys.exit(main())
