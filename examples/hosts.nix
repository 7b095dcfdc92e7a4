# The examples that are whole hosts, by name.
{
  single-host = ./single-host.nix;
}
