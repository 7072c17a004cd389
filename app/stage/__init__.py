"""The stage: which experts of the model are at work, where they live, and how that was in a run that was kept."""
