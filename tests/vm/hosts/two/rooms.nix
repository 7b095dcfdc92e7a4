# One of two machines: Synapse, PostgreSQL, the bridge. The agent and a second process of the bridge
# are on the other, as in examples/two-hosts. The network is that of the NixOS test driver: agents
# is 192.168.1.1, rooms is 192.168.1.2.
{ ... }:
{
  imports = [
    ../../rooms.nix
    ../../two.nix
  ];

  services.a2a-bridge.enable = true;

  services.postgresql = {
    enableTCPIP = true;
    authentication = ''
      host a2a-bridge a2a-bridge 192.168.1.1/32 scram-sha-256
    '';
    settings = {
      tcp_keepalives_idle = 30;
      tcp_keepalives_interval = 10;
      tcp_keepalives_count = 3;
    };
  };
  systemd.services.postgresql-setup = {
    serviceConfig.LoadCredential = [ "bridge:/run/given/bridge-database-password" ];
    postStart = ''
      psql --quiet --no-psqlrc --set=ON_ERROR_STOP=1 --dbname=postgres <<'SQL'
      \set password `cat "$CREDENTIALS_DIRECTORY/bridge"`
      ALTER ROLE "a2a-bridge" PASSWORD :'password';
      SQL
    '';
  };
  systemd.services.given-secrets = rec {
    requiredBy = [ "postgresql-setup.service" ];
    before = requiredBy;
  };

  services.matrix-synapse.settings.listeners = [
    {
      type = "http";
      port = 8008;
      tls = false;
      bind_addresses = [
        "127.0.0.1"
        "192.168.1.2"
      ];
      resources = [ { names = [ "client" ]; } ];
    }
  ];
  boot.kernel.sysctl."net.ipv4.ip_nonlocal_bind" = 1;

  networking.firewall.allowedTCPPorts = [
    5432
    8008
  ];
  networking.hostName = "rooms";
  system.stateVersion = "26.05";
}
