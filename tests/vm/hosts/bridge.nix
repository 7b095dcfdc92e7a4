# A bridge with all that it needs on one machine: Synapse on SQLite, PostgreSQL for the ledger, and
# an agent that answers with what it is told, and notes each call. Both tokens are made here; the
# agent's is given as a file.
{ ... }:
{
  imports = [ ../rooms.nix ];

  services.a2a-bridge = {
    enable = true;
    agents.echo = {
      url = "http://127.0.0.1:8123/";
      display_name = "Echo";
      tokenFile = "/run/given/echo-token";
      # It knows a message that comes again, so each mention has an answer, whoever is killed.
      idempotent = true;
    };
  };

  # Stands for agenix or sops-nix.
  systemd.services.given-secrets = {
    wantedBy = [ "multi-user.target" ];
    requiredBy = [
      "a2a-bridge.service"
      "echo-agent.service"
    ];
    before = [
      "a2a-bridge.service"
      "echo-agent.service"
    ];
    serviceConfig = {
      Type = "oneshot";
      RemainAfterExit = true;
    };
    script = ''
      umask 077
      mkdir -p /run/given
      # Not here: what is here is in the store.
      read -r token </proc/sys/kernel/random/uuid
      echo "$token" >/run/given/echo-token
    '';
  };

  systemd.services.echo-agent = {
    description = "An A2A agent that does what it is told";
    wantedBy = [ "multi-user.target" ];
    # Where the two kinds of machine have the scenarios' programs.
    path = [
      "/run/current-system/sw"
      "/usr/local"
    ];
    script = ''
      exec corral-vm agent /var/lib/echo-agent/calls.jsonl \
        --port 8123 --idempotent 86400 --token-file "$CREDENTIALS_DIRECTORY/token"
    '';
    serviceConfig = {
      User = "echo-agent";
      LoadCredential = [ "token:/run/given/echo-token" ];
      StateDirectory = "echo-agent";
      StateDirectoryMode = "0700";
      Restart = "always";
    };
  };
  users.users.echo-agent = {
    isSystemUser = true;
    group = "echo-agent";
  };
  users.groups.echo-agent = { };

  networking.hostName = "machine";
  system.stateVersion = "26.05";
}
