"""From a plan to published files: drafts, names, text, manifest, publishing and freshness."""
