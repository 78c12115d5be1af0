package otlp

import (
	"encoding/hex"
	"strings"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	logs "go.opentelemetry.io/proto/otlp/logs/v1"
	resource "go.opentelemetry.io/proto/otlp/resource/v1"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// conventions returns the attributes of the semantic conventions for an object of a built-in kind.
func conventions(kind, group, name, uid string) []*common.KeyValue {
	of := strings.ToLower(kind)
	switch group + "/" + kind {
	case "/Pod", "/Node", "/Service", "/ReplicationController", "/ResourceQuota", "/PersistentVolume", "/PersistentVolumeClaim",
		"apps/Deployment", "apps/ReplicaSet", "apps/StatefulSet", "apps/DaemonSet", "batch/Job", "batch/CronJob":
	case "autoscaling/HorizontalPodAutoscaler":
		of = "hpa"
	case "/Namespace", "storage.k8s.io/StorageClass": // no attribute for the uid
		uid = ""
	default:
		return nil
	}
	return attributes("k8s."+of+".name", name, "k8s."+of+".uid", uid)
}

// request returns a request with the events. They are grouped by cluster, which is an attribute of
// the resource.
func request(events []event.Event, cluster string) *collector.ExportLogsServiceRequest {
	r, now := &collector.ExportLogsServiceRequest{}, uint64(time.Now().UnixNano())
	scopes := map[string]*logs.ScopeLogs{}
	for i := range events {
		e, name := &events[i], cluster
		if e.Of != nil {
			name = e.Of.Object().Resource().Cluster
		}
		scope := scopes[name]
		if scope == nil {
			scope = &logs.ScopeLogs{Scope: &common.InstrumentationScope{Name: "deltarouter"}}
			scopes[name] = scope
			r.ResourceLogs = append(r.ResourceLogs, &logs.ResourceLogs{
				Resource:  &resource.Resource{Attributes: attributes("service.name", "deltarouter", "k8s.cluster.name", name)},
				ScopeLogs: []*logs.ScopeLogs{scope},
			})
		}
		record := recordOf(e)
		record.ObservedTimeUnixNano = now
		scope.LogRecords = append(scope.LogRecords, record)
	}
	return r
}

// recordOf returns the log record of an event. The data of the event is its body, as JSON text.
func recordOf(e *event.Event) *logs.LogRecord {
	r := &logs.LogRecord{
		SeverityNumber: logs.SeverityNumber_SEVERITY_NUMBER_INFO, SeverityText: "INFO", EventName: strings.ToValidUTF8(e.Type, "\uFFFD"), Body: text(string(e.Data)),
		Attributes: attributes("cloudevents.event_id", e.ID, "cloudevents.event_source", e.Source, "cloudevents.event_spec_version", "1.0",
			"cloudevents.event_type", e.Type, "cloudevents.event_subject", e.Subject, "deltarouter.route", e.Route),
	}
	if !e.Time.IsZero() {
		r.TimeUnixNano = uint64(e.Time.UnixNano())
	}
	if e.Redelivered {
		r.Attributes = append(r.Attributes, &common.KeyValue{Key: "deltarouter.redelivered", Value: &common.AnyValue{Value: &common.AnyValue_BoolValue{BoolValue: true}}})
	}
	if traced, err := hex.DecodeString(strings.ReplaceAll(e.TraceParent, "-", "")); err == nil && len(traced) == 1+16+8+1 {
		r.TraceId, r.SpanId, r.Flags = traced[1:17], traced[17:25], uint32(traced[25])
	}
	if e.Of == nil {
		return r
	}
	o := e.Of.Object()
	kind := o.Resource().Kind
	r.Attributes = append(r.Attributes, attributes("deltarouter.source", e.Of.Source, "deltarouter.op", e.Of.Op.String(), "k8s.namespace.name", o.Key().Namespace,
		"k8s.object.kind", kind, "k8s.object.name", o.Key().Name, "k8s.object.uid", o.UID(), "k8s.object.resource_version", o.ResourceVersion(),
		"k8s.object.api_version", o.Resource().GroupVersion().String())...)
	r.Attributes = append(r.Attributes, conventions(kind, o.Resource().Group, o.Key().Name, o.UID())...)
	return r
}

// attributes returns attributes of names and values, without empty values.
func attributes(pairs ...string) []*common.KeyValue {
	all := make([]*common.KeyValue, 0, len(pairs)/2)
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			all = append(all, &common.KeyValue{Key: pairs[i], Value: text(pairs[i+1])})
		}
	}
	return all
}

// text returns a text value. It replaces invalid UTF-8, which cannot be sent.
func text(s string) *common.AnyValue {
	return &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: strings.ToValidUTF8(s, "\uFFFD")}}
}
