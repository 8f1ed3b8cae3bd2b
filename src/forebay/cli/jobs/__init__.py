"""The commands of jobs: many shots migrated, inverted or explained, on one machine or many."""
