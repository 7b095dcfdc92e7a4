# The distribution with the `cowboy` program, for `pkgs.callPackage`.
{ python3Packages }:
python3Packages.callPackage (
  {
    lib,
    setuptools,
    aiosqlite,
    click,
    hiredis,
    prometheus-client,
    pydantic,
    pydantic-settings,
    redis,
    rich,
    structlog,
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
    postPatch = "cp ${../../examples/demo.json} corral/local/demo.json";

    build-system = [ setuptools ];
    dependencies = [
      aiosqlite
      click
      hiredis
      prometheus-client
      pydantic
      pydantic-settings
      redis
      rich
      structlog
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
) { }
