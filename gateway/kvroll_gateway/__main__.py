"""`python -m kvroll_gateway`."""

from kvroll_gateway.main import main

if __name__ == "__main__":
    main()
