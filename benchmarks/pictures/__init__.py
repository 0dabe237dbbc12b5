"""Results as pictures and as one HTML file: PNG for a quick look, SVG for print, both from the JSON alone."""
