"""What every layer shares: dtypes, locations, errors, target descriptions, configuration."""
