package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// podJSON is a pod of some 5 KB in the form of the API server, without managedFields.
func podJSON(i int) string {
	type object = map[string]any
	container := func(name string) object {
		var env []object
		for k := range 18 {
			env = append(env, object{"name": fmt.Sprintf("SETTING_%d", k), "value": strings.Repeat("v", 30)})
		}
		return object{
			"name": name, "image": "registry.example.com/team/" + name + ":v1.2.3", "env": env, "imagePullPolicy": "IfNotPresent",
			"resources":     object{"requests": object{"cpu": "100m", "memory": "128Mi"}, "limits": object{"memory": "256Mi"}},
			"livenessProbe": object{"httpGet": object{"path": "/healthz", "port": 8080}, "periodSeconds": 10},
			"volumeMounts":  []object{{"name": "config", "mountPath": "/etc/config"}, {"name": "token", "mountPath": "/var/run/secrets"}},
		}
	}
	status := func(name string) object {
		return object{
			"name": name, "ready": true, "restartCount": 3, "image": "registry.example.com/team/" + name + ":v1.2.3",
			"imageID": "registry.example.com/team/" + name + "@sha256:" + strings.Repeat("0123456789abcdef", 4), "containerID": "containerd://" + strings.Repeat("0123456789abcdef", 4),
			"state": object{"running": object{"startedAt": "2026-01-02T03:04:05Z"}},
		}
	}
	var conditions []object
	for _, kind := range []string{"Initialized", "Ready", "ContainersReady", "PodScheduled"} {
		conditions = append(conditions, object{"type": kind, "status": "True", "lastTransitionTime": "2026-01-02T03:04:05Z"})
	}
	text, err := json.Marshal(object{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": object{
			"name": fmt.Sprintf("checkout-7d9c6b8f4d-%05d", i), "namespace": "default", "uid": fmt.Sprintf("00000000-0000-4000-8000-%012d", i),
			"resourceVersion": fmt.Sprint(1000 + i), "labels": object{"app": "checkout", "team": "payments", "pod-template-hash": "7d9c6b8f4d"},
			"annotations": object{"prometheus.io/scrape": "true", "prometheus.io/port": "9090", "note": strings.Repeat("n", 300)},
		},
		"spec": object{
			"nodeName": fmt.Sprintf("node-%d", i%100), "containers": []object{container("checkout"), container("proxy")},
			"tolerations": []object{{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}},
		},
		"status": object{"phase": "Running", "podIP": "10.0.0.1", "conditions": conditions, "containerStatuses": []object{status("checkout"), status("proxy")}},
	})
	if err != nil {
		return ""
	}
	return string(text)
}

// deltas makes n changes of pods.
func deltas(n int) ([]*event.Delta, error) {
	pods := &event.Resource{Cluster: "bench", Kind: "Pod"}
	pods.Version, pods.Resource = "v1", "pods"
	all := make([]*event.Delta, n)
	for i := range all {
		o, err := event.ParseObject(pods, podJSON(i))
		if err != nil {
			return nil, err
		}
		all[i] = &event.Delta{Source: "pods", Op: event.Added, New: o}
	}
	return all, nil
}
