"""Drivers: one folder per kind of device."""
