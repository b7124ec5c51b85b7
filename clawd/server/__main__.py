import sys

from clawd.server.process import main

sys.exit(main())
