"""The search service: a JSON API and one page over an index. Needs the extra `serve`."""
