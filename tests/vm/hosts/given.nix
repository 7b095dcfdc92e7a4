# A machine whose secrets come as files, whose namespace has another name, and whose agent's runs
# may reach one port of one address. The agent says what it finds around it.
{ pkgs, ... }:
let
  probe = pkgs.writeShellScriptBin "probe" ''
    reach() {
      if timeout 10 bash -c "</dev/tcp/169.254.77.1/$1" 2>/dev/null; then
        echo yes
      else
        echo no
      fi
    }
    printf 'key=%s file=%s user=%s services=%s allowed=%s other=%s\n' \
      "$API_KEY" "$(cat "$CREDENTIALS_DIRECTORY/api-key")" "$(id -un)" \
      "$(env | grep -c ^COWBOY_)" "$(reach 443)" "$(reach 444)"
  '';
in
{
  services.cowboy = {
    enable = true;
    namespace = {
      name = "agents-ns";
      egress = [
        {
          address = "169.254.77.1";
          port = 443;
        }
      ];
    };
    metrics.directory = "/var/lib/metrics";
    secrets.files = {
      redis-agent-scout = "/run/given/redis-agent-scout";
      redis-operator = "/run/given/redis-operator";
    };
    agents.scout = {
      path = [
        probe
        pkgs.bash
      ];
      runner = {
        kind = "exec";
        command = [ "probe" ];
      };
      environmentFiles = [ "/run/given/scout.env" ];
      credentials.api-key = "/run/given/api-key";
      sources.a2a = { };
    };
  };

  # Stands for agenix or sops-nix.
  systemd.services.given-secrets = {
    wantedBy = [ "multi-user.target" ];
    requiredBy = [
      "cowboy-secrets.service"
      "cowboy-runner-scout.service"
    ];
    before = [
      "cowboy-secrets.service"
      "cowboy-runner-scout.service"
    ];
    serviceConfig = {
      Type = "oneshot";
      RemainAfterExit = true;
    };
    script = ''
      umask 077
      mkdir -p /run/given
      cd /run/given
      echo given-to-the-agents-daemon >redis-agent-scout
      printf given-to-the-operator >redis-operator
      echo API_KEY=planted-in-a-variable >scout.env
      printf planted-in-a-file >api-key
    '';
  };

  # What the scenario itself runs.
  environment.systemPackages = [ pkgs.python3 ];
  networking.hostName = "machine";
  system.stateVersion = "26.05";
}
