// Files to begin with: the examples that the documents run. The first of a kind is what an empty page begins with.
import database from "../../../../../examples/database/database.yaml?raw";
import web from "../../../../../examples/services/web.yaml?raw";
import hello from "../../../../../examples/tutorial/hello.yaml?raw";
import tutorial from "../../../../../examples/tutorial/pool.yaml?raw";
import controller from "../../../../../examples/controller.yaml?raw";
import daemon from "../../../../../examples/daemon.yaml?raw";
import gang from "../../../../../examples/gang.yaml?raw";
import maps from "../../../../../examples/maps.yaml?raw";
import overrides from "../../../../../examples/overrides.yaml?raw";
import revocable from "../../../../../examples/revocable.yaml?raw";

export const EXAMPLES: Record<string, Record<string, string>> = {
  job: {
    "a job": hello, "a gang, which starts whole": gang, "a controller": controller, "revocable instances": revocable,
    "instances that differ": overrides, "a daemon, on every host": daemon,
  },
  service: { "a web service": web, "a database with volumes": database },
  pool: { "a pool": tutorial, "a pool below another": maps },
};
