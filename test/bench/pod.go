package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"
)

// The variable parts of a pod have a fixed width, so that a frame is made by overwriting them in
// place.
const (
	markName    = "pod-0000000"
	markUID     = "00000000-0000-4000-8000-00000000000000"
	markVersion = "9999999999"
	markNode    = "node-0000"

	firstVersion = 1_000_000_000
	nodes        = 500
)

// template is a watch frame of a pod whose variable parts are overwritten.
type template struct {
	frame   []byte
	offsets map[string][]int
	varied  []string // see vary
}

func newTemplate(frame []byte) *template {
	t := &template{frame: frame, offsets: make(map[string][]int)}
	for _, mark := range []string{markName, markUID, markVersion, markNode} {
		t.find(mark)
	}
	return t
}

// find finds the places of a value.
func (t *template) find(value string) {
	for at := 0; ; {
		i := bytes.Index(t.frame[at:], []byte(value))
		if i < 0 {
			break
		}
		t.offsets[value] = append(t.offsets[value], at+i)
		at += i + len(value)
	}
}

// vary makes each pod differ from every other in about half of some values.
func (t *template) vary(values []string) {
	t.varied = values
	for _, value := range values {
		t.find(value)
	}
}

// fill writes pod number i at its change number version into the frame and returns it, valid until
// the next call.
func (t *template) fill(i, version int) []byte {
	random := rand.New(rand.NewPCG(uint64(i), 0))
	for _, value := range t.varied {
		other := value
		if random.IntN(2) == 0 {
			other = scramble(random, value)
		}
		t.set(value, other)
	}
	t.set(markName, fmt.Sprintf("pod-%07d", i))
	t.set(markUID, fmt.Sprintf("00000000-0000-4000-8000-%014d", i))
	t.set(markVersion, fmt.Sprintf("%010d", firstVersion+version))
	t.set(markNode, fmt.Sprintf("node-%04d", i%nodes))
	return t.frame
}

func (t *template) set(mark, value string) {
	for _, at := range t.offsets[mark] {
		copy(t.frame[at:], value)
	}
}

// scramble replaces the letters and digits of a value by others.
func scramble(random *rand.Rand, value string) string {
	b := []byte(value)
	for i, c := range b {
		switch {
		case 'a' <= c && c <= 'z':
			b[i] = 'a' + byte(random.IntN(26))
		case '0' <= c && c <= '9':
			b[i] = '0' + byte(random.IntN(10))
		}
	}
	return string(b)
}

// podFrames are the two frames that the server sends, in JSON, in protobuf, and as JSON of the
// metadata alone.
type podFrames struct {
	size, stripped int // bytes of the JSON of a pod, with and without managedFields
	json, proto    map[string]*template
	metadata       map[string]*template
}

func newPodFrames() (*podFrames, error) {
	pod := examplePod()
	full, err := json.Marshal(pod)
	if err != nil {
		return nil, err
	}
	bare := pod.DeepCopy()
	bare.ManagedFields = nil
	stripped, err := json.Marshal(bare)
	if err != nil {
		return nil, err
	}
	p := &podFrames{
		size: len(full), stripped: len(stripped),
		json: make(map[string]*template), proto: make(map[string]*template), metadata: make(map[string]*template),
	}
	partial, err := json.Marshal(&metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"}, ObjectMeta: pod.ObjectMeta,
	})
	if err != nil {
		return nil, err
	}
	for _, kind := range []string{"ADDED", "MODIFIED"} {
		p.json[kind] = newTemplate(fmt.Appendf(nil, `{"type":%q,"object":%s}`+"\n", kind, full))
		p.metadata[kind] = newTemplate(fmt.Appendf(nil, `{"type":%q,"object":%s}`+"\n", kind, partial))
		frame, err := protoFrame(kind, pod)
		if err != nil {
			return nil, err
		}
		p.proto[kind] = newTemplate(frame)
	}
	return p, nil
}

// longValue is a string value of a pod, but no time.
var longValue = regexp.MustCompile(`":"([^"]{6,})"`)

// vary makes each pod differ from every other in about half of its strings of six bytes or more. In
// a cluster the pods of a Deployment differ in far fewer.
func (p *podFrames) vary() error {
	pod := examplePod()
	pod.ManagedFields = nil
	text, err := json.Marshal(pod)
	if err != nil {
		return err
	}
	marks := regexp.MustCompile(strings.Join([]string{markName, markUID, markVersion, markNode, `^\d+-\d+-\d+T`}, "|"))
	var values []string
	for _, found := range longValue.FindAllSubmatch(text, -1) {
		if value := string(found[1]); !marks.MatchString(value) && !slices.Contains(values, value) {
			values = append(values, value)
		}
	}
	for _, frames := range []map[string]*template{p.json, p.proto, p.metadata} {
		for _, t := range frames {
			t.vary(values)
		}
	}
	return nil
}

// protoFrame encodes a watch event as the API server does for
// application/vnd.kubernetes.protobuf;stream=watch: a length of four bytes, then a WatchEvent
// around the enveloped object.
func protoFrame(kind string, object runtime.Object) ([]byte, error) {
	info, ok := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	if !ok {
		return nil, fmt.Errorf("no serializer for %s", runtime.ContentTypeProtobuf)
	}
	raw, err := runtime.Encode(scheme.Codecs.EncoderForVersion(info.Serializer, corev1.SchemeGroupVersion), object)
	if err != nil {
		return nil, err
	}
	body, err := (&metav1.WatchEvent{Type: kind, Object: runtime.RawExtension{Raw: raw}}).Marshal()
	if err != nil {
		return nil, err
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...), nil
}

// examplePod is a typical pod of a Deployment with a sidecar, after some weeks.
func examplePod() *corev1.Pod {
	now := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	yes, seconds := true, int64(30)
	condition := func(kind corev1.PodConditionType) corev1.PodCondition {
		return corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: now}
	}
	return &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Name: markName, Namespace: "default", UID: markUID, ResourceVersion: markVersion, GenerateName: "checkout-7d9c6b8f4d-",
			CreationTimestamp: now,
			Labels:            map[string]string{"app": "checkout", "team": "payments", "pod-template-hash": "7d9c6b8f4d"},
			Annotations:       map[string]string{"prometheus.io/scrape": "true", "prometheus.io/port": "9090", "users": "ernie,bert"},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "checkout-7d9c6b8f4d",
				UID: "1b4e28ba-2fa1-11d2-883f-0016d3cca427", Controller: &yes, BlockOwnerDeletion: &yes,
			}},
			ManagedFields: exampleManagedFields(now),
		},
		Spec: corev1.PodSpec{
			NodeName: markNode, ServiceAccountName: "checkout", RestartPolicy: corev1.RestartPolicyAlways,
			DNSPolicy: corev1.DNSClusterFirst, SchedulerName: "default-scheduler", TerminationGracePeriodSeconds: &seconds,
			Containers: []corev1.Container{exampleContainer("checkout"), exampleContainer("proxy")},
			Volumes: []corev1.Volume{{
				Name:         "config",
				VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "checkout"}}},
			}},
			Tolerations: []corev1.Toleration{
				{Key: "node.kubernetes.io/not-ready", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
				{Key: "node.kubernetes.io/unreachable", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
			},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, HostIP: "10.0.12.7", PodIP: "10.244.3.19", StartTime: &now, QOSClass: corev1.PodQOSBurstable,
			Conditions: []corev1.PodCondition{
				condition(corev1.PodInitialized), condition(corev1.PodReady), condition(corev1.ContainersReady), condition(corev1.PodScheduled),
			},
			ContainerStatuses: []corev1.ContainerStatus{exampleStatus("checkout", now), exampleStatus("proxy", now)},
		},
	}
}

func exampleContainer(name string) corev1.Container {
	probe := &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(8080), Scheme: corev1.URISchemeHTTP}},
		PeriodSeconds: 10, TimeoutSeconds: 1, SuccessThreshold: 1, FailureThreshold: 3,
	}
	return corev1.Container{
		Name: name, Image: "registry.example.com/shop/" + name + ":2026.1.2",
		Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: corev1.ProtocolTCP}},
		Env:   []corev1.EnvVar{{Name: "LOG_LEVEL", Value: "info"}, {Name: "REGION", Value: "eu-central-1"}},
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("250m"), corev1.ResourceMemory: resource.MustParse("256Mi")},
			Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("512Mi")},
		},
		VolumeMounts:  []corev1.VolumeMount{{Name: "config", MountPath: "/etc/checkout", ReadOnly: true}},
		LivenessProbe: probe, TerminationMessagePath: "/dev/termination-log", ImagePullPolicy: corev1.PullIfNotPresent,
	}
}

func exampleStatus(name string, now metav1.Time) corev1.ContainerStatus {
	started := true
	return corev1.ContainerStatus{
		Name: name, Ready: true, Started: &started, RestartCount: 2,
		Image:       "registry.example.com/shop/" + name + ":2026.1.2",
		ImageID:     "registry.example.com/shop/" + name + "@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
		ContainerID: "containerd://5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8",
		State:       corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
	}
}

// exampleManagedFields are the entries of two managers: about two fifths of the object, as in a
// real cluster.
func exampleManagedFields(now metav1.Time) []metav1.ManagedFieldsEntry {
	container := `{".":{},"f:env":{".":{},"k:{\"name\":\"LOG_LEVEL\"}":{".":{},"f:name":{},"f:value":{}}},"f:image":{},"f:imagePullPolicy":{},` +
		`"f:livenessProbe":{".":{},"f:failureThreshold":{},"f:httpGet":{".":{},"f:path":{},"f:port":{},"f:scheme":{}},"f:periodSeconds":{}},` +
		`"f:name":{},"f:ports":{".":{},"k:{\"containerPort\":8080,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{},"f:name":{}}},` +
		`"f:resources":{".":{},"f:limits":{".":{},"f:memory":{}},"f:requests":{".":{},"f:cpu":{},"f:memory":{}}},"f:volumeMounts":{}}`
	spec := `{"f:metadata":{"f:annotations":{".":{},"f:prometheus.io/port":{},"f:prometheus.io/scrape":{}},"f:generateName":{},` +
		`"f:labels":{".":{},"f:app":{},"f:pod-template-hash":{},"f:team":{}},"f:ownerReferences":{}},` +
		`"f:spec":{"f:containers":{"k:{\"name\":\"checkout\"}":` + container + `,"k:{\"name\":\"proxy\"}":` + container + `},` +
		`"f:dnsPolicy":{},"f:restartPolicy":{},"f:schedulerName":{},"f:serviceAccountName":{},"f:terminationGracePeriodSeconds":{}}}`
	status := `{"f:status":{"f:conditions":{"k:{\"type\":\"Ready\"}":{".":{},"f:lastTransitionTime":{},"f:status":{},"f:type":{}}},` +
		`"f:containerStatuses":{},"f:hostIP":{},"f:phase":{},"f:podIP":{},"f:startTime":{}}}`
	entry := func(manager, subresource, text string) metav1.ManagedFieldsEntry {
		fields := &metav1.FieldsV1{}
		_ = fields.UnmarshalJSON([]byte(text)) // accepts any text
		return metav1.ManagedFieldsEntry{
			Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: &now, FieldsType: "FieldsV1",
			FieldsV1: fields, Subresource: subresource,
		}
	}
	return []metav1.ManagedFieldsEntry{entry("kube-controller-manager", "", spec), entry("kubelet", "status", status)}
}
