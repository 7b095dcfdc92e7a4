# One of two hosts: Synapse, PostgreSQL and the bridge. The agents are on another, agents.nix, and
# with them a second process of the bridge, which has its jobs in the database of this host.
{ lib, ... }:
{
  imports = [ ./both.nix ];

  services.a2a-bridge.enable = true;

  services.postgresql = {
    enableTCPIP = true;
    # Only the process there, by password; the one of this host comes by the socket.
    authentication = ''
      host a2a-bridge a2a-bridge 192.0.2.20/32 scram-sha-256
    '';
    settings = {
      # A host that lost its power says no goodbye: its sessions are closed after a minute.
      tcp_keepalives_idle = 30;
      tcp_keepalives_interval = 10;
      tcp_keepalives_count = 3;
    };
  };

  # The password of that process, from a file; it is in agents' `bridge-database`, too.
  systemd.services.postgresql-setup = {
    serviceConfig.LoadCredential = [ "bridge:/run/secrets/bridge-database-password" ];
    postStart = ''
      psql --quiet --no-psqlrc --set=ON_ERROR_STOP=1 --dbname=postgres <<'SQL'
      \set password `cat "$CREDENTIALS_DIRECTORY/bridge"`
      ALTER ROLE "a2a-bridge" PASSWORD :'password';
      SQL
    '';
  };

  services.matrix-synapse = {
    enable = true;
    settings = {
      server_name = "example.org";
      database.name = "sqlite3";
      registration_shared_secret_path = "/var/lib/matrix-synapse/registration-secret";
      listeners = [
        {
          type = "http";
          port = 8008;
          tls = false;
          # The second process of the bridge posts answers, too.
          bind_addresses = [
            "127.0.0.1"
            "192.0.2.10"
          ];
          resources = [ { names = [ "client" ]; } ];
        }
      ];
    };
  };
  # The private network may come up after Synapse.
  boot.kernel.sysctl."net.ipv4.ip_nonlocal_bind" = 1;

  networking.firewall.interfaces.wg0.allowedTCPPorts = [
    5432
    8008
  ];

  networking.hostName = "rooms";
  fileSystems."/" = lib.mkDefault {
    device = "/dev/disk/by-label/nixos";
    fsType = "ext4";
  };
  boot.loader.grub.device = lib.mkDefault "/dev/vda";
  documentation.nixos.enable = lib.mkDefault false;
  system.stateVersion = "26.05";
}
