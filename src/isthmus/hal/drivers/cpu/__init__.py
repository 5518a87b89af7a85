"""The host CPU: objects linked in this process, command lists walked by native code."""
