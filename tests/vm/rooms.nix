# What the machines with rooms have in common: Synapse on SQLite, and a bridge on a slow machine.
{ ... }:
{
  imports = [ ./slow-bridge.nix ];

  services.matrix-synapse = {
    enable = true;
    settings = {
      server_name = "corral.test";
      database.name = "sqlite3";
      # The scenario's people register by themselves, and nobody else is there.
      enable_registration = true;
      enable_registration_without_verification = true;
      report_stats = false;
      trusted_key_servers = [ ];
      presence.enabled = false;
      rc_message = {
        per_second = 1000;
        burst_count = 1000;
      };
    };
  };

  # Somebody who has nothing to do with any of it.
  users.users.alice.isNormalUser = true;
}
