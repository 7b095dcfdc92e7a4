{
  lib,
  python3Packages,
}:
let
  # Stated once, where the program itself reads it.
  version = builtins.match ".*__version__ = \"([^\"]+)\".*" (
    builtins.readFile ../../python/corral/__init__.py
  );
in
python3Packages.buildPythonApplication {
  pname = "corral";
  version = builtins.head version;
  pyproject = true;

  src = ../../python;

  build-system = [ python3Packages.setuptools ];

  dependencies = [
    python3Packages.aiosqlite
    python3Packages.click
    python3Packages.hiredis
    python3Packages.prometheus-client
    python3Packages.pydantic
    python3Packages.pydantic-settings
    python3Packages.redis
    python3Packages.rich
    python3Packages.structlog
  ];

  # The tests need servers and a terminal: `./corral test` runs them, from a checkout.
  doCheck = false;
  pythonImportsCheck = [
    "corral.cowboy.main"
    "corral.cowboy.runner"
  ];

  meta = {
    description = "Carries messages to AI agents and their answers back; loses none to a kill";
    license = lib.licenses.asl20;
    mainProgram = "cowboy";
    platforms = lib.platforms.linux;
  };
}
