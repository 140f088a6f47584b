"""What a datapod keeps in its home folder: journal, outbox log, the files of its tasks."""
