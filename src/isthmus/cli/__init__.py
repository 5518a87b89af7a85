"""The isthmus command: thin commands over the packages below."""
