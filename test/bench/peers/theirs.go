package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
)

// programs returns all tools of the comparison, the router first.
func programs() []program {
	return []program{
		router(), bareLoop(), kubewatch(), bento(), knative(), metacontroller(), collector(), shellOperator(), argoEvents(), eventExporter(),
	}
}

// kubewatch posts with its CloudEvents handler, because its webhook handler does not send the
// object. It has no selector of labels or fields.
func kubewatch() program {
	return program{
		name: "kubewatch", binaries: []string{"kubewatch"}, works: []*work{configMaps()}, note: "handler cloudevent, which sends the whole object",
		setUp: func(_ context.Context, p *place) ([]command, error) {
			_, err := p.write(".kubewatch.yaml", fmt.Sprintf("namespace: %s\nresource: {configmap: true}\nhandler: {cloudevent: {url: %q}}\n", namespace, p.receiver))
			address, addressErr := freeAddress()
			if addressErr != nil {
				return nil, addressErr
			}
			return []command{{path: p.binary("kubewatch"), env: []string{"LISTEN_ADDRESS=" + address}}}, err
		},
		parse: func(_ http.Header, body []byte) ([]told, error) {
			var event struct {
				Data struct {
					Operation   string  `json:"operation"`
					Description string  `json:"description"`
					Obj         *stated `json:"obj"`
				} `json:"data"`
			}
			if err := json.Unmarshal(body, &event); err != nil {
				return nil, err
			}
			deleted := event.Data.Operation == "delete"
			if event.Data.Obj != nil && event.Data.Obj.Metadata.Name != "" {
				return []told{event.Data.Obj.told(deleted)}, nil
			}
			// A delete that a new list has found: only the description names the object.
			description := strings.TrimSuffix(event.Data.Description, "`")
			name := description[strings.LastIndexAny(description, "`/")+1:]
			if !deleted || name == "" {
				return nil, oneOf("an object")
			}
			return []told{{object: name, deleted: true}}, nil
		},
	}
}

const bentoConfig = `http: {enabled: false}
input: {kubernetes_watch: {resource: configmaps, namespaces: [%s], kubeconfig: %q}}
pipeline:
  processors:
    - mapping: 'root = {"op": @kubernetes_watch_event_type, "name": this.metadata.name, "stamp": this.data.stamp}'
output: {retry: {output: {http_client: {url: %q, verb: POST}}}}
`

func bento() program {
	return program{
		name: "Bento", binaries: []string{"bento"}, works: []*work{configMaps()}, parse: parseBrief, version: []string{"--version"}, note: "retry around the output",
		setUp: func(_ context.Context, p *place) ([]command, error) {
			config, err := p.write("bento.yaml", fmt.Sprintf(bentoConfig, namespace, p.kubeconfig, p.receiver))
			return []command{{path: p.binary("bento"), args: []string{"-c", config}}}, err
		},
	}
}

// knative is the process that Knative starts for an ApiServerSource.
func knative() program {
	return program{
		name: "Knative", binaries: []string{"apiserver_receive_adapter"}, works: []*work{configMaps()}, note: "mode Resource, without a broker",
		setUp: func(_ context.Context, p *place) ([]command, error) {
			source, err := json.Marshal(map[string]any{
				"namespaces": []string{namespace}, "mode": "Resource",
				"resources": []any{map[string]any{"gvr": map[string]string{"Group": "", "Version": "v1", "Resource": "configmaps"}}},
			})
			return []command{{path: p.binary("apiserver_receive_adapter"), env: []string{
				"K_SINK=" + p.receiver, "K_SOURCE_CONFIG=" + string(source), "NAME=peers", "NAMESPACE=" + namespace, "SYSTEM_NAMESPACE=" + namespace,
				"K_SINK_TIMEOUT=-1", "METRICS_DOMAIN=knative.dev/eventing",
			}}}, err
		},
		parse: func(header http.Header, body []byte) ([]told, error) {
			var object stated
			if err := json.Unmarshal(body, &object); err != nil {
				return nil, err
			}
			return []told{object.told(strings.HasSuffix(header.Get("Ce-Type"), ".delete"))}, nil
		},
	}
}

// metacontroller calls its sync hook with present states; the hook wants nothing. It needs its
// kinds in the cluster, here without their schemas.
func metacontroller() program {
	return program{
		name: "metacontroller", binaries: []string{"metacontroller"}, works: []*work{configMaps()}, answer: `{"attachments":[]}`,
		note: "a DecoratorController without a finalize hook: level-triggered, it tells no deletes",
		setUp: func(ctx context.Context, p *place) ([]command, error) {
			for _, kind := range []struct{ kind, scope string }{
				{"CompositeController", "Cluster"}, {"DecoratorController", "Cluster"}, {"ControllerRevision", "Namespaced"},
			} {
				if err := p.define(ctx, "metacontroller.k8s.io", "v1alpha1", kind.kind, kind.scope); err != nil {
					return nil, err
				}
			}
			err := p.apply(ctx, "metacontroller.k8s.io/v1alpha1", "decoratorcontrollers", map[string]any{
				"apiVersion": "metacontroller.k8s.io/v1alpha1", "kind": "DecoratorController", "metadata": map[string]any{"name": "peers"},
				"spec": map[string]any{
					"resources": []any{map[string]any{"apiVersion": "v1", "resource": "configmaps"}},
					"hooks":     map[string]any{"sync": map[string]any{"webhook": map[string]any{"url": p.receiver, "timeout": "10s"}}},
				},
			})
			return []command{{
				path: p.binary("metacontroller"),
				args: []string{"--kubeconfig", p.kubeconfig, "--metrics-address=0", "--health-probe-bind-address=0"},
			}}, err
		},
		parse: func(_ http.Header, body []byte) ([]told, error) {
			var call struct {
				Object stated `json:"object"`
			}
			if err := json.Unmarshal(body, &call); err != nil {
				return nil, err
			}
			return []told{call.Object.told(false)}, nil
		},
	}
}

const hook = `#!/usr/bin/env bash
if [[ $1 == --config ]]; then
  echo '{"configVersion": "v1", "kubernetes": [{"name": "changes", "apiVersion": "v1", "kind": "ConfigMap",
    "namespace": {"nameSelector": {"matchNames": ["%s"]}}}]}'
  exit
fi
set -o pipefail
jq -c '[.[] | if .type == "Synchronization" then .objects[].object as $o | {op: "added", o: $o} else {op: .watchEvent, o: .object} end
  | {op, name: .o.metadata.name, stamp: .o.data.stamp}]' "$BINDING_CONTEXT_PATH" |
  curl --silent --show-error --fail --output /dev/null --header 'Content-Type: application/json' --data-binary @- '%s'
`

// shellOperator runs a script, which posts all changes of a run at once.
func shellOperator() program {
	return program{
		name: "shell-operator", binaries: []string{"shell-operator"}, tools: []string{"bash", "jq", "curl"}, works: []*work{configMaps()},
		version: []string{"version"}, untried: true, note: "a hook of bash, jq and curl; events that queue up are one run",
		setUp: func(_ context.Context, p *place) ([]command, error) {
			script, err := p.write("hooks/hook.sh", fmt.Sprintf(hook, namespace, p.receiver))
			if err != nil {
				return nil, err
			}
			address, err := freeAddress()
			if err != nil {
				return nil, err
			}
			_, port, err := net.SplitHostPort(address)
			return []command{{path: p.binary("shell-operator"), args: []string{
				"start", "--hooks-dir", filepath.Dir(script), "--tmp-dir", filepath.Join(p.dir, "tmp"), "--kube-config", p.kubeconfig,
				"--debug-unix-socket", filepath.Join(p.dir, "debug.socket"), "--listen-address", "127.0.0.1", "--listen-port", port,
			}}}, err
		},
		parse: func(_ http.Header, body []byte) (all []told, err error) {
			var run []brief
			if err := json.Unmarshal(body, &run); err != nil {
				return nil, err
			}
			for _, b := range run {
				all = append(all, b.told())
			}
			return all, nil
		},
	}
}

const exporterConfig = `logLevel: warn
logFormat: json
maxEventAgeSeconds: 60
omitLookup: true
kubeQPS: 100
kubeBurst: 500
namespace: %s
metricsNamePrefix: event_exporter_
route: {routes: [{match: [{receiver: hook}]}]}
receivers: [{name: hook, webhook: {endpoint: %q, layout: {op: added, name: "{{ .Name }}", stamp: "{{ .Message }}"}}}]
`

// eventExporter tells Events only. Without omitLookup it asks for the object of each Event.
func eventExporter() program {
	return program{
		name: "KEE", binaries: []string{"kubernetes-event-exporter"}, works: []*work{events()}, parse: parseBrief,
		note: "kubernetes-event-exporter with omitLookup and maxEventAgeSeconds: 60",
		setUp: func(_ context.Context, p *place) ([]command, error) {
			config, err := p.write("exporter.yaml", fmt.Sprintf(exporterConfig, namespace, p.receiver))
			if err != nil {
				return nil, err
			}
			address, err := freeAddress()
			return []command{{path: p.binary("kubernetes-event-exporter"), args: []string{
				"-conf", config, "-kubeconfig", p.kubeconfig, "-metrics-address", address,
			}}}, err
		},
	}
}

// told returns the statement about the object.
func (s *stated) told(deleted bool) told {
	return told{s.Metadata.Name, number(cmp.Or(s.Data.Stamp, s.Message)), deleted}
}

// freeAddress returns an address of loopback that no process uses now.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}
