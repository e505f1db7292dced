"""What the verbs of the command line do, one file a verb; `cli` has their options."""
