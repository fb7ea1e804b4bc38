# ruff: noqa: BLE001, E401, E701, E702, E741, F401, I001, PLW0603, PTH123, RUF059, S310, S323, T201
# fmt: off
"""Black-box fidelity probe for anything that speaks the Kubernetes HTTP API.

Runs the same ~40 small checks (the ones our backend depends on) against a real
kube-apiserver or an emulator, prints one line per check and, with --record DIR, stores
each request/response pair as JSON. Standard library only; loopback targets only.

  probe.py --url http://127.0.0.1:8080 [--token T] [--insecure] [--record DIR] [--ns probe]
"""
import argparse, json, ssl, sys, threading, time, urllib.error, urllib.parse, urllib.request

ap = argparse.ArgumentParser()
ap.add_argument("--url", required=True)
ap.add_argument("--token")
ap.add_argument("--insecure", action="store_true")
ap.add_argument("--record")
ap.add_argument("--ns", default="probe")
ap.add_argument("--controllers", action="store_true", help="a job controller is running")
A = ap.parse_args()
host = urllib.parse.urlsplit(A.url).hostname
assert host in ("127.0.0.1", "localhost", "::1"), "loopback only"
CTX = ssl._create_unverified_context() if A.insecure else None
NS = A.ns
JOBS = f"/apis/batch/v1/namespaces/{NS}/jobs"
rows, n_rec = [], 0


def call(method, path, body=None, ctype="application/json", stream=False, timeout=15, label=None):
    global n_rec
    req = urllib.request.Request(A.url + path, method=method)
    if A.token:
        req.add_header("Authorization", "Bearer " + A.token)
    data = None
    if body is not None:
        data = json.dumps(body).encode()
        req.add_header("Content-Type", ctype)
    try:
        r = urllib.request.urlopen(req, data, timeout=timeout, context=CTX)
        code = r.status
    except urllib.error.HTTPError as e:
        r, code = e, e.code
    if stream:
        return code, r
    raw = r.read()
    try:
        out = json.loads(raw)
    except ValueError:
        out = {"_raw": raw.decode("utf8", "replace")[:2000]}
    if A.record and label:
        n_rec += 1
        with open(f"{A.record}/{n_rec:03d}-{label}.json", "w") as f:
            json.dump({"request": {"method": method, "path": path, "content_type": ctype if body is not None else None,
                                   "body": body}, "status": code, "response": out}, f, indent=1)
    return code, out


def watch(path, seconds, max_events=50, on_open=None):
    """events of one watch request, bounded in time and count"""
    ev = []
    code, r = call("GET", path, stream=True, timeout=seconds + 2)
    if code != 200:
        try:
            return code, [json.loads(r.read())]
        except Exception:
            return code, []
    if on_open:
        threading.Timer(0.3, on_open).start()
    end = time.time() + seconds
    try:
        while time.time() < end and len(ev) < max_events:
            line = r.readline()
            if not line:
                ev.append({"type": "_EOF"})
                break
            if line.strip():
                ev.append(json.loads(line))
    except Exception as e:  # read timeout
        ev.append({"type": "_" + type(e).__name__})
    return code, ev


def check(name, fn):
    try:
        ok, note = fn()
    except Exception as e:
        ok, note = False, f"{type(e).__name__}: {e}"
    rows.append((name, ok, note))
    print(f"{'ok  ' if ok else 'DIFF'} {name:<46} {note}", flush=True)


def job(name, labels=None, n=2, **spec):
    lab = {"sweep": "s1", "trial": name, **(labels or {})}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "namespace": NS, "labels": lab},
            "spec": {"completions": n, "parallelism": n, "completionMode": "Indexed", "backoffLimit": 0, "suspend": not A.controllers,
                     **spec, "template": {"metadata": {"labels": lab}, "spec": {
                         "restartPolicy": "Never", "subdomain": name,
                         "containers": [{"name": "main", "image": "img", "command": ["true"]}]}}}}


def status_of(o):
    return {k: o.get(k) for k in ("kind", "status", "reason", "code") if k in o}


call("POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NS}})
S = {}


def c_version():
    c, o = call("GET", "/version", label="version"); return c == 200 and "gitVersion" in o, o.get("gitVersion")
def c_create():
    c, o = call("POST", JOBS, job("t-1"), label="job-create"); S["j"] = o; m = o.get("metadata", {})
    return c == 201 and all(k in m for k in ("uid", "resourceVersion", "creationTimestamp", "generation")), f"{c} meta={sorted(m)}"
def c_default():
    s = S["j"].get("spec", {}); return "selector" in s and "podReplacementPolicy" in s, f"spec keys={sorted(s)}"
def c_dup():
    c, o = call("POST", JOBS, job("t-1"), label="job-create-again-409"); return c == 409 and o.get("reason") == "AlreadyExists", f"{c} {status_of(o)} details={o.get('details', {}) if c==409 else ''}"[:200]
def c_badname():
    c, o = call("POST", JOBS, job("Bad_Name"), label="job-bad-name-422"); return c == 422, f"{c} {o.get('message','')[:150]}"
def c_longname():
    r = []
    for k in (61, 62, 63, 64):
        c, o = call("POST", JOBS, job("x" * k), label=f"job-name-{k}-chars"); r.append((k, c, o.get("message", "")[:160] if c >= 400 else ""))
        if c == 201: call("DELETE", f"{JOBS}/{'x'*k}?propagationPolicy=Background")
    return r[-1][1] == 422, str(r)[:700]
def c_badspec():
    b = job("t-bad", podFailurePolicy={"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [0]}}]})
    c, o = call("POST", JOBS, b, label="job-bad-podfailurepolicy-422"); return c == 422, f"{c} {o.get('message','')[:200]}"
def c_unknown_field():
    b = job("t-unk"); b["spec"]["noSuchField"] = 1
    c, o = call("POST", JOBS + "?fieldValidation=Strict", b, label="job-unknown-field-strict-400"); return c == 400, f"{c} {o.get('message','')[:120]}"
def c_dry():
    c, o = call("POST", JOBS + "?dryRun=All", job("t-dry"), label="job-dryrun"); c2, _ = call("GET", JOBS + "/t-dry")
    return c == 201 and c2 == 404, f"{c} then GET {c2}"
def c_get404():
    c, o = call("GET", JOBS + "/nope", label="job-get-404"); return c == 404 and o.get("reason") == "NotFound", f"{c} {status_of(o)}"
def c_labelsel():
    call("POST", JOBS, job("t-2", {"sweep": "s2"})); q = urllib.parse.quote("sweep=s2")
    c, o = call("GET", f"{JOBS}?labelSelector={q}", label="job-list-selector"); names = [i["metadata"]["name"] for i in o.get("items", [])]
    return names == ["t-2"], f"{c} {names} kind={o.get('kind')} rv={o.get('metadata',{}).get('resourceVersion')}"
def c_setsel():
    q = urllib.parse.quote("sweep in (s1,s2),trial!=t-1"); c, o = call("GET", f"{JOBS}?labelSelector={q}")
    names = [i["metadata"]["name"] for i in o.get("items", [])]; return names == ["t-2"], str(names)
def c_fieldsel():
    c, o = call("GET", f"{JOBS}?fieldSelector=metadata.name%3Dt-1"); names = [i["metadata"]["name"] for i in o.get("items", [])]
    return names == ["t-1"], str(names)
def c_limit():
    c, o = call("GET", f"{JOBS}?limit=1", label="job-list-limit-1"); m = o.get("metadata", {})
    return len(o.get("items", [])) == 1 and bool(m.get("continue")), f"items={len(o.get('items', []))} meta={sorted(m)}"
def c_rv():
    c, o = call("GET", JOBS); S["rv"] = o["metadata"]["resourceVersion"]; return S["rv"].isdigit(), f"list rv={S['rv']}"
def c_watch_rv():
    q = f"{JOBS}?watch=true&resourceVersion={S['rv']}&timeoutSeconds=3"
    c, ev = watch(q, 5, on_open=lambda: call("PATCH", JOBS + "/t-1", {"metadata": {"annotations": {"a": "1"}}}, "application/merge-patch+json"))
    t = [e["type"] for e in ev]; return t[:1] == ["MODIFIED"], f"{c} {t}"
def c_watch_timeout():
    t0 = time.time(); c, ev = watch(f"{JOBS}?watch=true&resourceVersion={S['rv']}&timeoutSeconds=2", 6); dt = time.time() - t0
    return bool(ev) and ev[-1]["type"] == "_EOF" and dt < 5, f"closed after {dt:.1f}s, last={ev[-1]['type'] if ev else None}"
def c_watch_initial():
    c, ev = watch(f"{JOBS}?watch=true&timeoutSeconds=2", 4); t = [e["type"] for e in ev]; return t.count("ADDED") >= 2, str(t)
def c_watch_sel():
    q = urllib.parse.quote("sweep=s2"); c, ev = watch(f"{JOBS}?watch=true&timeoutSeconds=2&labelSelector={q}", 4)
    names = [e["object"]["metadata"]["name"] for e in ev if "object" in e and e["type"] != "BOOKMARK"]; return names == ["t-2"], str(names)
def c_watch_leave():
    q = urllib.parse.quote("sweep=s2"); _, o = call("GET", JOBS); rv = o["metadata"]["resourceVersion"]
    c, ev = watch(f"{JOBS}?watch=true&timeoutSeconds=3&resourceVersion={rv}&labelSelector={q}", 5,
                  on_open=lambda: call("PATCH", JOBS + "/t-2", {"metadata": {"labels": {"sweep": "s3"}}}, "application/merge-patch+json"))
    t = [e["type"] for e in ev]; call("PATCH", JOBS + "/t-2", {"metadata": {"labels": {"sweep": "s2"}}}, "application/merge-patch+json")
    return t[:1] == ["DELETED"], f"object leaves selector -> {t}"
def c_watch_list():
    q = f"{JOBS}?watch=true&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=2"
    c, ev = watch(q, 4); t = [e["type"] for e in ev]
    bm = [e for e in ev if e["type"] == "BOOKMARK"]; ann = bm[0]["object"]["metadata"].get("annotations") if bm else None
    return "BOOKMARK" in t or (t[:1] == ["ERROR"] and ev[0]["object"].get("code") == 500), f"{c} {t} {ann} (500 ERROR event when etcd < 3.4.25/3.5.8)"
def c_watch_old():
    t0rv = int(S["rv"]) < 2000 if str(S.get("rv", "")).isdigit() else False  # a fresh server still has all history
    c, ev = watch(f"{JOBS}?watch=true&resourceVersion=1&timeoutSeconds=2", 4)
    e = ev[0] if ev else {}; o = e.get("object", e)
    return o.get("code") == 410 or (t0rv and e.get("type") in ("ADDED", "MODIFIED")), f"HTTP {c} first={e.get('type')} {status_of(o)} {o.get('message','')[:80]}"
def c_watch_future():
    c, ev = watch(f"{JOBS}?watch=true&resourceVersion=99999999&timeoutSeconds=2", 8)
    e = ev[0] if ev else {}; o = e.get("object", e); return o.get("code") in (504, 410, 500) or e.get("type") == "_EOF", f"HTTP {c} first={e.get('type')} {status_of(o)} {str(o.get('message',''))[:80]}"
def c_merge_null():
    call("PATCH", JOBS + "/t-1", {"metadata": {"annotations": {"b": "2"}}}, "application/merge-patch+json")
    c, o = call("PATCH", JOBS + "/t-1", {"metadata": {"annotations": {"b": None}}}, "application/merge-patch+json", label="job-merge-patch"); an = o.get("metadata", {}).get("annotations", {})
    return c == 200 and "b" not in an, f"{c} {an}"
def c_strategic():
    c, o = call("PATCH", JOBS + "/t-1", {"metadata": {"annotations": {"c": "3"}}}, "application/strategic-merge-patch+json"); return c == 200, str(c)
def c_jsonpatch():
    c, o = call("PATCH", JOBS + "/t-1", [{"op": "add", "path": "/metadata/annotations/d", "value": "4"}], "application/json-patch+json")
    return c == 200 and o.get("metadata", {}).get("annotations", {}).get("d") == "4", f"{c}"
def c_ssa():
    b = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "t-1", "annotations": {"e": "5"}}}
    c, o = call("PATCH", JOBS + "/t-1?fieldManager=probe", b, "application/apply-patch+yaml", label="job-apply"); return c == 200 and "managedFields" in o.get("metadata", {}), str(c)
def c_immutable():
    c, o = call("PATCH", JOBS + "/t-1", {"spec": {"completionMode": "NonIndexed"}}, "application/merge-patch+json", label="job-immutable-422"); return c == 422, f"{c} {o.get('message','')[:140]}"
def c_conflict():
    _, o = call("GET", JOBS + "/t-1"); o["metadata"]["resourceVersion"] = "1"; o["metadata"].setdefault("annotations", {})["z"] = "1"
    c, r = call("PUT", JOBS + "/t-1", o, label="job-put-stale-409"); return c == 409 and r.get("reason") == "Conflict", f"{c} {status_of(r)}"
def c_status_sub():
    call("PATCH", JOBS + "/t-1", {"status": {"ready": 7}}, "application/merge-patch+json"); _, o = call("GET", JOBS + "/t-1")
    return o.get("status", {}).get("ready") != 7, f"status through main resource -> {o.get('status')}"[:150]
def c_suspend():
    c, o = call("PATCH", JOBS + "/t-2", {"spec": {"suspend": True}}, "application/merge-patch+json", label="job-suspend"); return c == 200 and o["spec"]["suspend"] is True, str(c)
def c_del_uid():
    c, o = call("DELETE", JOBS + "/t-1", {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": "00000000-0000-0000-0000-000000000000"}}, label="job-delete-wrong-uid-409"); return c == 409, f"{c} {o.get('message','')[:140]}"
def c_del_fg():
    c, o = call("DELETE", JOBS + "/t-1?propagationPolicy=Foreground", label="job-delete-foreground"); m = o.get("metadata", {})
    return c == 200 and ("foregroundDeletion" in (m.get("finalizers") or [])), f"{c} kind={o.get('kind')} fin={m.get('finalizers')} delTs={m.get('deletionTimestamp')}"
def c_del_bg():
    c, o = call("DELETE", JOBS + "/t-2?propagationPolicy=Background", label="job-delete-background"); return c == 200 and o.get("kind") == "Status" and o.get("status") == "Success", f"{c} {status_of(o)} details={o.get('details')}"
def c_del_404():
    c, o = call("DELETE", JOBS + "/nope", label="job-delete-404"); return c == 404, f"{c} {status_of(o)}"
def c_del_coll():
    call("POST", JOBS, job("t-3", {"sweep": "s9"})); call("POST", JOBS, job("t-4", {"sweep": "s8"}))
    c, o = call("DELETE", JOBS + "?labelSelector=sweep%3Ds9&propagationPolicy=Background", label="job-delete-collection"); time.sleep(0.5); _, l = call("GET", JOBS)
    names = sorted(i["metadata"]["name"] for i in l.get("items", [])); return c == 200 and "t-3" not in names and "t-4" in names, f"{c} left={names}"
def c_log404():
    c, o = call("GET", f"/api/v1/namespaces/{NS}/pods/nope/log", label="pod-log-404"); return c == 404 and o.get("reason") == "NotFound", f"{c} {status_of(o)}"
def c_ssar():
    b = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": {"namespace": NS, "verb": "create", "group": "batch", "resource": "jobs"}}}
    c, o = call("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", b, label="ssar"); return c == 201 and "allowed" in o.get("status", {}), f"{c} {o.get('status')}"
def c_svc():
    b = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "t-5"}, "spec": {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {"job-name": "t-5"}, "ports": [{"port": 29500}]}}
    c, o = call("POST", f"/api/v1/namespaces/{NS}/services", b, label="headless-service-create"); return c == 201 and o["spec"].get("clusterIP") == "None", f"{c}"
def c_svc_owner():
    _, j = call("POST", JOBS, job("t-5")); _, s = call("GET", f"/api/v1/namespaces/{NS}/services/t-5")
    b = {"metadata": {"ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "t-5", "uid": j.get("metadata", {}).get("uid"), "controller": False, "blockOwnerDeletion": False}]}}
    c, o = call("PATCH", f"/api/v1/namespaces/{NS}/services/t-5", b, "application/merge-patch+json", label="service-owner-patch"); call("DELETE", JOBS + "/t-5?propagationPolicy=Background")
    for _ in range(60):
        time.sleep(0.25); g, _o = call("GET", f"/api/v1/namespaces/{NS}/services/t-5")
        if g == 404: break
    return c == 200 and g == 404, f"owner patch {c}; service after job delete: GET {g} (needs the GC controller)"
def c_svcname():
    r = []
    for nme in ("1abc", "a" * 63, "a" * 64, "a.b"):
        c, o = call("POST", f"/api/v1/namespaces/{NS}/services?dryRun=All", {"metadata": {"name": nme}, "spec": {"clusterIP": "None", "ports": [{"port": 1}]}}); r.append((nme[:4] + str(len(nme)), c))
    return [x[1] for x in r][2:] == [422, 422], str(r) + " (a leading digit is 422 before 1.36)"
def c_cm_big():
    c, o = call("POST", f"/api/v1/namespaces/{NS}/configmaps", {"metadata": {"name": "big"}, "data": {"f": "x" * (1048576 + 1)}}, label=None); return c in (413, 422), f"{c} {str(o.get('message',''))[:90]}"
def c_label_bad():
    c, o = call("POST", JOBS + "?dryRun=All", job("t-lab", {"k": "has space"}), label="job-bad-label-422"); return c == 422, f"{c} {o.get('message','')[:120]}"


for name, fn in list(globals().items()):
    if name.startswith("c_"):
        check(name[2:], fn)
print(f"{sum(r[1] for r in rows)} of {len(rows)} as a real API server")
for nme in ("t-4", "t-5"):
    call("DELETE", f"{JOBS}/{nme}?propagationPolicy=Background")
