"""Areas and routes from files: GeoJSON, KML, KMZ, GPX and QGroundControl plans."""
