"""What people read of a sweep: tables and files. Pure."""
