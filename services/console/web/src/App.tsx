import { Route, Router, Switch } from "wouter";
import { useHashLocation } from "wouter/use-hash-location";
import { Alerts } from "./pages/Alerts";
import { Audit } from "./pages/Audit";
import { Compare } from "./pages/Compare";
import { Model } from "./pages/Model";
import { Models } from "./pages/Models";
import { NewProject } from "./pages/NewProject";
import { NewRun } from "./pages/NewRun";
import { NotFound } from "./pages/NotFound";
import { Overview } from "./pages/Overview";
import { Project } from "./pages/Project";
import { Run } from "./pages/Run";
import { Settings } from "./pages/Settings";
import { SignIn } from "./pages/SignIn";
import { Study } from "./pages/Study";
import { Welcome } from "./pages/Welcome";
import { Loading } from "./parts/Loading";
import { Problem } from "./parts/Problem";
import { Shell } from "./parts/Shell";
import { useSession } from "./session/Session";

/** Places are behind `#`: they are never sent to a server, and a page that is loaded anew is where it was. */
export function App() {
  return (
    <Router hook={useHashLocation}>
      <Switch>
        <Route path="/welcome/:token">{({ token }) => <Welcome given={token} />}</Route>
        <Route path="/sign-in/refused/:why">{({ why }) => <SignIn refused={why} />}</Route>
        <Route>
          <Inside />
        </Route>
      </Switch>
    </Router>
  );
}

function Inside() {
  const { session, known, problem, retry } = useSession();
  if (problem) {
    return (
      <main className="alone">
        <Problem error={problem} retry={retry} />
      </main>
    );
  }
  if (!known) return <Loading what="your session" />;
  if (!session) return <SignIn />;
  return (
    <Shell>
      <Switch>
        <Route path="/" component={Overview} />
        <Route path="/new-project" component={NewProject} />
        <Route path="/projects/:project/new-run">{({ project }) => <NewRun project={project} />}</Route>
        <Route path="/projects/:project/runs/:run/study">
          {({ project, run }) => <Study key={run} project={project} run={run} />}
        </Route>
        <Route path="/projects/:project/compare/:runs?">{({ project, runs }) => <Compare project={project} runs={runs ?? ""} />}</Route>
        <Route path="/projects/:project/runs/:run">
          {({ project, run }) => <Run key={run} project={project} run={run} />}
        </Route>
        <Route path="/projects/:project/models/:version">
          {({ project, version }) => <Model key={version} project={project} version={version} />}
        </Route>
        <Route path="/projects/:project/models">{({ project }) => <Models project={project} />}</Route>
        <Route path="/projects/:project/audit">{({ project }) => <Audit key={project} project={project} />}</Route>
        <Route path="/projects/:project/:tab?">
          {({ project, tab }) => <Project key={project} project={project} tab={tab} />}
        </Route>
        <Route path="/settings" component={Settings} />
        <Route path="/alerts" component={Alerts} />
        <Route path="/audit">{() => <Audit key="hub" project={null} />}</Route>
        <Route component={NotFound} />
      </Switch>
    </Shell>
  );
}
