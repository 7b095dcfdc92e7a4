"""`corral backup` and `corral restore`, on a host of a few files."""
