"""Writers of forecasts."""
