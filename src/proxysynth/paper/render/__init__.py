"""How a table or figure looks: Markdown, CSV, LaTeX, HTML."""
