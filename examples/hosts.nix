# The examples that are whole hosts, by name.
{
  agents-only = ./agents-only.nix;
  bridge-and-gateway = ./bridge-and-gateway.nix;
  bridge-remote-postgres = ./bridge-remote-postgres.nix;
  disabled-agent = ./disabled-agent.nix;
  renamed-namespace = ./renamed-namespace.nix;
  secrets-as-files = ./secrets-as-files.nix;
  single-host = ./single-host.nix;
  terminals = ./terminals.nix;
  two-hosts-agents = ./two-hosts/agents.nix;
  two-hosts-rooms = ./two-hosts/rooms.nix;
}
