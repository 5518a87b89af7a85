"""Devices behind one small protocol: device, buffer, queue, command list, event, executable."""
