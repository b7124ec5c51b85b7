"""`python -m clawd` is the command `clawd`."""

from clawd.cli.app import main

if __name__ == "__main__":
    main()
