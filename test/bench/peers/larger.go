package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

const collectorConfig = `extensions: {file_storage: {directory: %[1]q}}
receivers:
  k8sobjects:
    auth_type: kubeConfig
%[2]s    objects: [{name: %[3]s, mode: watch, namespaces: [%[4]s]}]
exporters:
  otlphttp:
    endpoint: %[5]q
    encoding: json
    compression: none
    retry_on_failure: {max_elapsed_time: 0s}
    sending_queue: {storage: file_storage, queue_size: 100000}
service:
  extensions: [file_storage]
  telemetry: {metrics: {level: none}}
  pipelines: {logs: {receivers: [k8sobjects], exporters: [otlphttp]}}
`

// collector keeps its position where the receiver has a setting for that.
func collector() program {
	const binary = "otelcol-contrib"
	return program{
		name: "OpenTelemetry Collector", binaries: []string{binary}, works: []*work{configMaps(), events()}, version: []string{"--version"}, untried: true,
		note:  "k8sobjects receiver, otlphttp exporter with a persistent queue; it keeps its position if it can",
		parse: parseLogs,
		setUp: func(ctx context.Context, p *place) ([]command, error) {
			storage := filepath.Join(p.dir, "storage")
			if err := os.MkdirAll(storage, 0o700); err != nil {
				return nil, err
			}
			var config string
			for _, position := range []string{"    storage: file_storage\n", ""} {
				var err error
				text := fmt.Sprintf(collectorConfig, storage, position, p.work.resource, namespace, p.receiver)
				if config, err = p.write("collector.yaml", text); err != nil {
					return nil, err
				}
				validate := exec.CommandContext(ctx, p.binary(binary), "validate", "--config", config)
				if validate.Env = environment(p); validate.Run() == nil {
					break
				}
			}
			return []command{{path: p.binary(binary), args: []string{"--config", config}}}, nil
		},
	}
}

// anyValue is a value of OTLP, as JSON.
type anyValue struct {
	Text string `json:"stringValue"`
	List struct {
		Values []struct {
			Key   string   `json:"key"`
			Value anyValue `json:"value"`
		} `json:"values"`
	} `json:"kvlistValue"`
}

// field returns the value of a path.
func (v anyValue) field(path ...string) anyValue {
	for _, name := range path {
		var next anyValue
		for _, entry := range v.List.Values {
			if entry.Key == name {
				next = entry.Value
			}
		}
		v = next
	}
	return v
}

// parseLogs reads an export of logs, whose bodies are events of a watch.
func parseLogs(_ http.Header, body []byte) (all []told, err error) {
	var export struct {
		ResourceLogs []struct {
			ScopeLogs []struct {
				LogRecords []struct {
					Body anyValue `json:"body"`
				} `json:"logRecords"`
			} `json:"scopeLogs"`
		} `json:"resourceLogs"`
	}
	if err := json.Unmarshal(body, &export); err != nil {
		return nil, err
	}
	for _, resource := range export.ResourceLogs {
		for _, scope := range resource.ScopeLogs {
			for _, record := range scope.LogRecords {
				object := record.Body.field("object")
				stamp := object.field("data", "stamp").Text + object.field("message").Text
				all = append(all, told{object.field("metadata", "name").Text, number(stamp), record.Body.field("type").Text == "DELETED"})
			}
		}
	}
	return all, nil
}

const natsConfig = `listen: %q
jetstream: {store_dir: %q}
tls: {cert_file: %q, key_file: %q}
`

// argoEvents are the processes that the controller of Argo Events starts for an event bus, an event
// source and a sensor. Its client of NATS insists on TLS. The last two listen on one fixed port, as
// they have pods of their own: the sensor needs a build with another SensorMetricsPort.
func argoEvents() program {
	const binary, sensor, broker = "argo-events", "argo-events-sensor", "nats-server"
	return program{
		name: "Argo Events", binaries: []string{binary, sensor, broker}, works: []*work{configMaps()}, parse: parseBrief,
		note: "event source, sensor with retries, NATS JetStream with one server; atLeastOnce",
		setUp: func(_ context.Context, p *place) ([]command, error) {
			address, err := freeAddress()
			if err != nil {
				return nil, err
			}
			cert, key, err := p.certificate()
			if err != nil {
				return nil, err
			}
			nats, err := p.write("nats.conf", fmt.Sprintf(natsConfig, address, filepath.Join(p.dir, "nats"), cert, key))
			if err != nil {
				return nil, err
			}
			bus := encoded(map[string]any{"jetstream": map[string]any{"url": "nats://" + address, "streamConfig": "maxMsgs: 50000\nreplicas: 1\nduplicates: 300s\n"}})
			common := []string{"EVENTBUS_CONFIG=" + bus, "EVENTBUS_SUBJECT=eventbus-" + namespace, "POD_NAME=peers-0"}
			source := encoded(argoObject("EventSource", map[string]any{"resource": map[string]any{"changes": map[string]any{
				"namespace": namespace, "version": "v1", "resource": "configmaps", "eventTypes": []string{"ADD", "UPDATE", "DELETE"},
			}}}))
			return []command{
				{path: p.binary(broker), args: []string{"-c", nats}, address: address},
				{path: p.binary(sensor), args: []string{"sensor-service"}, env: append([]string{"SENSOR_OBJECT=" + encoded(argoSensor(p.receiver))}, common...)},
				{path: p.binary(binary), args: []string{"eventsource-service"}, env: append([]string{"EVENTSOURCE_OBJECT=" + source}, common...)},
			}, nil
		},
	}
}

func argoObject(kind string, spec map[string]any) map[string]any {
	return map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": kind, "metadata": map[string]any{"name": "peers", "namespace": namespace}, "spec": spec,
	}
}

// argoSensor posts three fields of each change, again and again until the receiver takes it.
func argoSensor(url string) map[string]any {
	var payload []any
	for _, f := range [][2]string{{"op", "type"}, {"name", "body.metadata.name"}, {"stamp", "body.data.stamp"}} {
		payload = append(payload, map[string]any{"src": map[string]any{"dependencyName": "changes", "dataKey": f[1]}, "dest": f[0]})
	}
	return argoObject("Sensor", map[string]any{
		"dependencies": []any{map[string]any{"name": "changes", "eventSourceName": "peers", "eventName": "changes"}},
		"triggers": []any{map[string]any{
			"template":      map[string]any{"name": "post", "http": map[string]any{"url": url, "method": http.MethodPost, "payload": payload}},
			"policy":        map[string]any{"status": map[string]any{"allow": []int{http.StatusOK}}},
			"retryStrategy": map[string]any{"steps": 100, "duration": "1s", "factor": 1},
			"atLeastOnce":   true,
		}},
	})
}

// encoded returns an object as the processes of Argo Events read it from their environment.
func encoded(object any) string {
	text, err := json.Marshal(object)
	if err != nil {
		panic(err) // maps and texts only
	}
	return base64.StdEncoding.EncodeToString(text)
}

// certificate writes a certificate of this place and its key.
func (p *place) certificate() (cert, key string, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", "", err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"}, DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(7 * 24 * time.Hour),
	}
	public, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		return "", "", err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return "", "", err
	}
	if cert, err = p.write("cert.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: public}))); err != nil {
		return "", "", err
	}
	key, err = p.write("key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})))
	return cert, key, err
}

// define makes a kind with any fields.
func (p *place) define(ctx context.Context, group, version, kind, scope string) error {
	singular := strings.ToLower(kind)
	return p.apply(ctx, "apiextensions.k8s.io/v1", "customresourcedefinitions", map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{
			"name":        singular + "s." + group,
			"annotations": map[string]any{"api-approved.kubernetes.io": "unapproved"}, // required of groups of k8s.io
		},
		"spec": map[string]any{
			"group": group, "scope": scope, "names": map[string]any{"kind": kind, "singular": singular, "plural": singular + "s"},
			"versions": []any{map[string]any{
				"name": version, "served": true, "storage": true, "subresources": map[string]any{"status": map[string]any{}},
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
			}},
		},
	})
}

// apply creates a cluster-wide object. Its kind may be new: the API server then needs a moment.
func (p *place) apply(ctx context.Context, version, resource string, object map[string]any) error {
	const patience = 20 * time.Second
	client, err := dynamic.NewForConfig(p.config)
	if err != nil {
		return err
	}
	parsed, err := schema.ParseGroupVersion(version)
	if err != nil {
		return err
	}
	for until := time.Now().Add(patience); ; {
		_, err := client.Resource(parsed.WithResource(resource)).Create(ctx, &unstructured.Unstructured{Object: object}, metav1.CreateOptions{})
		if !apierrors.IsNotFound(err) || time.Now().After(until) {
			return err
		}
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}
