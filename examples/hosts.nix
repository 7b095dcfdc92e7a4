# The examples that are whole hosts, by name.
{
  agents-only = ./agents-only.nix;
  disabled-agent = ./disabled-agent.nix;
  renamed-namespace = ./renamed-namespace.nix;
  secrets-as-files = ./secrets-as-files.nix;
  single-host = ./single-host.nix;
}
