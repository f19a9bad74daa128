"""`python -m kvroll_operator`."""

from kvroll_operator.main import main

if __name__ == "__main__":
    main()
