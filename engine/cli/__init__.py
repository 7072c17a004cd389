"""The command line: `main` ends what a verb begins, a file for each verb, and what verbs share."""
