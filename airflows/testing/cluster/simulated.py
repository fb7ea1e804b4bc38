"""Containers that do what their plan says."""

from __future__ import annotations

from dataclasses import dataclass, field

from airflows.testing.cluster.kubelet import MAIN, Kubelet
from airflows.testing.cluster.messages import Json
from airflows.testing.cluster.plans import PodPlan
from airflows.testing.cluster.podstatus import Exit
from airflows.testing.cluster.world import World
from airflows.testing.workspace.clock import Appointment


@dataclass(slots=True)
class _Course:
    plan: PodPlan
    main: str
    restarts: bool
    due: list[Appointment] = field(default_factory=list)


class SimulatedContainers:
    """All containers of the cluster; none is a process."""

    def __init__(self, world: World, kubelet: Kubelet) -> None:
        self._world, self._kubelet = world, kubelet
        self._courses: dict[str, _Course] = {}

    def start(self, pod: Json, plan: PodPlan) -> None:
        """Let them run."""
        uid, spec = pod["metadata"]["uid"], pod["spec"]
        if plan.init_exit_code and spec.get("initContainers"):
            name = spec["initContainers"][0]["name"]
            self._kubelet.ended(uid, {name: Exit(plan.init_exit_code)})
            return
        if plan.start_error:
            self._kubelet.ended(uid, {main_of(pod): Exit(128, "StartError", plan.start_error)})
            return
        course = _Course(plan, main_of(pod), restarts=spec.get("restartPolicy") == "OnFailure")
        self._courses[uid] = course
        self._kubelet.running(uid)
        log = self._kubelet.log(uid, course.main)
        for line in plan.logs:
            log.write(line.encode() + b"\n", self._world.now())
        if plan.run_s is not None:
            course.due.append(self._world.after(plan.run_s, lambda: self._run_out(uid)))

    def end(self, uid: str, end: Exit) -> None:
        """Let them end now."""
        course = self._courses.pop(uid, None)
        if course is None:
            return
        for appointment in course.due:
            appointment.is_off = True
        self._kubelet.ended(uid, {course.main: end})

    def terminate(self, uid: str) -> None:
        """Send SIGTERM."""
        course = self._courses.get(uid)
        if course is not None and course.plan.on_term_s is not None:
            end = Exit(course.plan.on_term_exit_code)
            course.due.append(self._world.after(course.plan.on_term_s, lambda: self.end(uid, end)))

    def kill(self, uid: str) -> None:
        """Send SIGKILL."""
        self.end(uid, Exit(137))

    def close(self) -> None:
        """End all of them: there is nothing to end."""
        self._courses.clear()

    def _run_out(self, uid: str) -> None:
        course = self._courses.get(uid)
        if course is None:
            return
        plan = course.plan
        end = Exit(137, "OOMKilled") if plan.oom else Exit(plan.exit_code, message=plan.termination_message)
        if end.code and course.restarts:
            self._kubelet.restarted(uid, end)
            course.due.append(self._world.after(plan.run_s or 0.0, lambda: self._run_out(uid)))
            return
        self.end(uid, end)


def main_of(pod: Json) -> str:
    """Return the name of the container that counts: `main`, else the first."""
    names = [str(container["name"]) for container in pod["spec"]["containers"]]
    return MAIN if MAIN in names else names[0]
