package main

// The values of the chart: the tags describe them for values.yaml and values.schema.json.
//
//	json     the key
//	doc      its description
//	default  its value in values.yaml, as YAML
//	enum     the permitted values
//	min      the least number

// object and list are values in the form of a part of the Kubernetes API. The API server validates
// them.
type (
	object map[string]any
	list   []any
)

// configuration stands for the schema of the router's configuration.
type configuration object

// rules are the PolicyRules of each namespace.
type rules map[string]list

type values struct {
	Config            configuration `json:"config" default:"{}" doc:"The configuration of the router, see docs/CONFIG.md. Absent keys: version is 1, state.dir is the volume below, listen.probes is the port below, and listen.api is a loopback port for router -in and kubectl exec. Changes need no restart, except those of cluster, state, listen and fleet: these replace the pod."`
	ExistingConfigMap string        `json:"existingConfigMap" default:"\"\"" doc:"Name of a ConfigMap in the same namespace, instead of config. The router reads all its keys *.yaml as one configuration, which must set state.dir to /var/lib/deltarouter/state and listen.probes to the port below. After a change of cluster, state, listen or fleet, delete the pods."`

	Image            image  `json:"image" doc:"The image of the router."`
	ImagePullSecrets list   `json:"imagePullSecrets" default:"[]" doc:"Secrets with credentials of the registry, as [{name: registry}]."`
	NameOverride     string `json:"nameOverride" default:"\"\"" doc:"Replaces the name of the chart in labels and names."`
	FullnameOverride string `json:"fullnameOverride" default:"\"\"" doc:"Replaces the name of all objects."`

	State      state   `json:"state" doc:"The volume of the checkpoint, backlogs and dead letters."`
	Fleet      fleet   `json:"fleet" doc:"Several routers with the section fleet of the configuration: a leader and a standby that takes over, without volumes. See docs/OPERATIONS.md, A fleet."`
	Workers    workers `json:"workers" doc:"The workers of the fleet, which handle the routes that have workers: a Deployment of router worker."`
	Access     access  `json:"access" doc:"The API for users of the cluster, by their rights, see docs/OPERATIONS.md, Access to the API. Otherwise it is for router -in and kubectl exec alone."`
	ProbesPort int     `json:"probesPort" default:"8081" min:"1" doc:"Port of /healthz, /readyz and, without access, /metrics."`
	Drain      int     `json:"drainTimeoutSeconds" default:"20" min:"0" doc:"How long the router delivers its backlog when it stops. The grace period of the pod is 15 seconds longer."`
	Policy     list    `json:"policyArgs" default:"[]" doc:"Flags about the programs and files that the configuration may use, as [-plugin-dir=/plugins/alerts]: see router run -h. helm test has them too."`
	Args       list    `json:"extraArgs" default:"[]" doc:"Other flags of router run, as [-log-level=debug]."`
	Env        list    `json:"extraEnv" default:"[]" doc:"Variables for ${NAME} in the configuration: [{name: TOKEN, valueFrom: {secretKeyRef: {name: chat, key: token}}}]."`
	EnvFrom    list    `json:"extraEnvFrom" default:"[]" doc:"Secrets and ConfigMaps whose keys become variables, as [{secretRef: {name: chat}}]."`
	Secrets    []file  `json:"secretFiles" default:"[]" doc:"Secrets to mount: [{name: chat, secret: chat-credentials}] makes {file: /secrets/chat/KEY} for each key. The router reads changed files again."`

	Plugins      []plugin `json:"plugins" default:"[]" doc:"Folders of plugins: [{name: alerts, volume: {configMap: {name: alerts}}}] makes /plugins/alerts. volume is any volume of a pod, as configMap, image or persistentVolumeClaim."`
	Modules      modules  `json:"modules" doc:"Modules of registries, for module: oci://… in config."`
	Init         list     `json:"extraInitContainers" default:"[]" doc:"Init containers, as one that copies plugins from an image into /plugins/NAME. The volume of a plugin has the name plugin-NAME."`
	Volumes      list     `json:"extraVolumes" default:"[]" doc:"More volumes of the pod."`
	VolumeMounts list     `json:"extraVolumeMounts" default:"[]" doc:"Where the container has them."`

	ServiceAccount serviceAccount `json:"serviceAccount" doc:"The identity of the router in the cluster."`
	RBAC           rbac           `json:"rbac" doc:"The rights of the router: router rbac -namespace NAMESPACE -o helm-values prints them for a configuration and the namespace of the release."`

	Definitions definitions `json:"customResourceDefinitions" doc:"The definitions of routes and clusterroutes, see docs/CUSTOM-RESOURCES.md."`

	PodAnnotations object `json:"podAnnotations" default:"{}" doc:"Annotations of the pod."`
	PodLabels      object `json:"podLabels" default:"{}" doc:"Labels of the pod."`
	PodSecurity    object `json:"podSecurityContext" default:"{runAsNonRoot: true, runAsUser: 65532, runAsGroup: 65532, fsGroup: 65532, fsGroupChangePolicy: OnRootMismatch, seccompProfile: {type: RuntimeDefault}}" doc:"Security of the pod. The defaults fulfil the Pod Security Standard restricted."`
	Security       object `json:"securityContext" default:"{allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}" doc:"Security of the container."`
	Resources      object `json:"resources" default:"{requests: {cpu: 100m, memory: 256Mi}}" doc:"CPU and memory, see docs/OPERATIONS.md, Sizing. The router keeps Go's memory below 90 % of a limit; GOMEMLIMIT in extraEnv changes that."`
	NodeSelector   object `json:"nodeSelector" default:"{}" doc:"Labels of the nodes for the pod."`
	Tolerations    list   `json:"tolerations" default:"[]" doc:"Taints that the pod tolerates."`
	Affinity       object `json:"affinity" default:"{}" doc:"Rules about nodes and other pods."`
	TopologySpread list   `json:"topologySpreadConstraints" default:"[]" doc:"Rules about zones and nodes."`
	PriorityClass  string `json:"priorityClassName" default:"\"\"" doc:"PriorityClass of the pod."`

	NetworkPolicy  networkPolicy  `json:"networkPolicy" doc:"A NetworkPolicy for the pod."`
	Disruption     disruption     `json:"podDisruptionBudget" doc:"A PodDisruptionBudget for the pod."`
	ServiceMonitor serviceMonitor `json:"serviceMonitor" doc:"A ServiceMonitor of the Prometheus Operator."`
	PrometheusRule prometheusRule `json:"prometheusRule" doc:"The alerts of docs/OPERATIONS.md as a PrometheusRule of the Prometheus Operator."`
	Dashboard      dashboard      `json:"dashboard" doc:"The dashboard for Grafana as a ConfigMap."`
	Global         object         `json:"global" doc:"Values of a parent chart. This chart has no use for them." hidden:"true"`
}

type image struct {
	Repository string `json:"repository" default:"deltarouter" doc:"Where you pushed the image, see docs/OPERATIONS.md, Container image."`
	Tag        string `json:"tag" default:"\"\"" doc:"Its tag. Empty: the appVersion of the chart."`
	Digest     string `json:"digest" default:"\"\"" doc:"Its digest, as sha256:…. It replaces the tag."`
	PullPolicy string `json:"pullPolicy" default:"IfNotPresent" enum:"Always IfNotPresent Never" doc:"When the node pulls it."`
}

type state struct {
	EmptyDir     bool   `json:"emptyDir" default:"false" doc:"Use a volume that ends with the pod. A new pod then starts without backlog, and misses the changes between the two."`
	Size         string `json:"size" default:"16Gi" doc:"Size of the volume: twice state.maxSize of the configuration, which is 8Gi by default. This has room for the history, too, unless history.maxSize of the configuration is over an eighth of state.maxSize: then add it."`
	StorageClass string `json:"storageClassName" default:"\"\"" doc:"StorageClass of the volume. Empty: the default of the cluster."`
}

type fleet struct {
	Enabled    bool   `json:"enabled" default:"false" doc:"The configuration has fleet. The routers have an emptyDir in place of a volume, and a PodDisruptionBudget, and prefer different nodes. For a release that had a volume, delete its StatefulSet with --cascade=orphan first."`
	Replicas   int    `json:"replicas" default:"2" min:"1" doc:"Number of routers: one leads, the others stand by."`
	NATSSecret string `json:"natsSecret" default:"\"\"" doc:"Name of a Secret that is mounted at /nats, for fleet.nats of config: {creds: {file: /nats/KEY}}. The router reads changed files again."`
	CredsKey   string `json:"credsKey" default:"\"\"" doc:"Key in the Secret with the content of a .creds file. It sets fleet.nats.credentials of config."`
	KeysSecret string `json:"keysSecret" default:"\"\"" doc:"Name of a Secret with the keys members and workers, each of 32 bytes or more. It sets fleet.keys of config; workers get the key workers only. Restart the pods after a change."`
}

type workers struct {
	Enabled        bool        `json:"enabled" default:"false" doc:"Create them. Needs fleet.enabled."`
	NATSSecret     string      `json:"natsSecret" default:"\"\"" doc:"Name of the Secret that workers have at /nats, with the permissions of a worker (router fleet permissions) and the same keys. Empty: fleet.natsSecret, so a worker may do what the leader may."`
	Replicas       int         `json:"replicas" default:"2" min:"0" doc:"Number of workers. With autoscaling the HorizontalPodAutoscaler sets it."`
	Autoscaling    autoscaling `json:"autoscaling" doc:"A HorizontalPodAutoscaler by the deltas that wait for workers. It needs an adapter that serves the metric of Prometheus as an external one, as prometheus-adapter or KEDA."`
	Drain          int         `json:"drainTimeoutSeconds" default:"30" min:"0" doc:"How long a worker handles the deltas in hand when it stops. The grace period of the pod is 15 seconds longer."`
	Args           list        `json:"extraArgs" default:"[]" doc:"Other flags of router worker, as [-log-level=debug]."`
	ServiceAccount string      `json:"serviceAccountName" default:"\"\"" doc:"ServiceAccount of the workers. Empty: they have no token, as they need no rights. For sinks of the kind kubernetes in routes with workers, one with their rights."`
	Resources      object      `json:"resources" default:"{requests: {cpu: 100m, memory: 128Mi}}" doc:"CPU and memory of a worker."`
	PodAnnotations object      `json:"podAnnotations" default:"{}" doc:"Annotations of the pods of workers."`
	NodeSelector   object      `json:"nodeSelector" default:"{}" doc:"Labels of the nodes for workers."`
	Tolerations    list        `json:"tolerations" default:"[]" doc:"Taints that workers tolerate."`
	Affinity       object      `json:"affinity" default:"{}" doc:"Rules about nodes and other pods for workers. Empty: they prefer different nodes."`
}

type autoscaling struct {
	Enabled     bool   `json:"enabled" default:"false" doc:"Create it."`
	MinReplicas int    `json:"minReplicas" default:"2" min:"1" doc:"Least number of workers."`
	MaxReplicas int    `json:"maxReplicas" default:"8" min:"1" doc:"Largest number of workers. More than the partitions of the routes have no effect."`
	Metric      string `json:"metric" default:"deltarouter_fleet_work_deltas" doc:"Name of the external metric."`
	Selector    object `json:"selector" default:"{}" doc:"Labels of the metric, as {namespace: routing}. Empty: those of the release, as {namespace: NAMESPACE}."`
	Target      string `json:"target" default:"\"1000\"" doc:"Deltas that may wait for each worker."`
}

type access struct {
	Enabled   bool   `json:"enabled" default:"false" doc:"Sets listen.api, listen.access and listen.tls of config, and adds the API to the Service. With existingConfigMap, set them there. /metrics is then at the port of the API, and needs the right to get it. The ClusterRole has the rights for it."`
	TLSSecret string `json:"tlsSecret" default:"\"\"" doc:"Name of a Secret with tls.crt and tls.key, as cert-manager makes it, for NAME.NAMESPACE.svc. It is mounted at /tls, and read again when it changes."`
	ClientCA  string `json:"clientCA" default:"\"\"" doc:"Key in the Secret with the authorities of client certificates, as client-ca.crt. They can be any user. Empty: tokens only."`
	Port      int    `json:"port" default:"8484" min:"1" doc:"Port of the API."`
}

type file struct {
	Name   string `json:"name" required:"true" doc:"Name of the folder below /secrets."`
	Secret string `json:"secret" required:"true" doc:"Name of the Secret."`
}

type plugin struct {
	Name   string `json:"name" required:"true" doc:"Name of the folder below /plugins."`
	Volume object `json:"volume" required:"true" doc:"The volume."`
}

type modules struct {
	Secret string `json:"credentialsSecret" default:"\"\"" doc:"Name of a Secret of the type kubernetes.io/dockerconfigjson with the credentials of the registries, as kubectl create secret docker-registry makes it. It may be one of imagePullSecrets. The router reads it at each connection to a registry."`
	Lock   string `json:"lock" default:"\"\"" doc:"Content of plugins.lock, as --set-file modules.lock=plugins.lock gives it. With existingConfigMap, add the key plugins.lock there."`
}

type serviceAccount struct {
	Create      bool   `json:"create" default:"true" doc:"Create it."`
	Name        string `json:"name" default:"\"\"" doc:"Its name. Empty: the name of the other objects, or default if it is not created."`
	Annotations object `json:"annotations" default:"{}" doc:"Its annotations."`
}

type rbac struct {
	Create       bool  `json:"create" default:"true" doc:"Create the roles and their bindings."`
	ClusterRules list  `json:"clusterRules" default:"[]" doc:"Rules of a ClusterRole."`
	Rules        rules `json:"rules" default:"{}" doc:"Rules of a Role in each namespace: {NAMESPACE: [rule]}."`
}

type definitions struct {
	Create bool `json:"create" default:"false" doc:"Create and update them. A cluster has them once: leave it false in the other releases. They stay when the release is removed, because the objects would go with them."`
}

type networkPolicy struct {
	Enabled bool `json:"enabled" default:"true" doc:"Create it. false: every pod of the cluster reaches the ports, if no other policy forbids it."`
	From    list `json:"from" default:"[]" doc:"Peers that may reach the port of the probes and metrics, and with access that of the API, as [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}]. Empty: none; the kubelet still reaches it. serviceMonitor and access need the namespaces of Prometheus and of the users."`
	Egress  list `json:"egress" default:"[]" doc:"Rules about outgoing connections. They must permit the API server, DNS and the sinks. Empty: all are permitted."`
}

type disruption struct {
	Enabled        bool `json:"enabled" default:"false" doc:"Create it."`
	MaxUnavailable int  `json:"maxUnavailable" default:"1" min:"0" doc:"0 forbids evictions, so a drain of the node waits until you delete the pod."`
}

type serviceMonitor struct {
	Enabled  bool   `json:"enabled" default:"false" doc:"Create it."`
	Interval string `json:"interval" default:"30s" doc:"How often Prometheus scrapes."`
	Labels   object `json:"labels" default:"{}" doc:"Labels by which your Prometheus selects it."`
	TLS      object `json:"tlsConfig" default:"{}" doc:"With access: how Prometheus verifies the API. Empty: by ca.crt in access.tlsSecret, for NAME.NAMESPACE.svc."`
}

type prometheusRule struct {
	Enabled  bool   `json:"enabled" default:"false" doc:"Create it. Its alerts cover all routers of the Prometheus: create it in one release."`
	Labels   object `json:"labels" default:"{}" doc:"Labels by which your Prometheus selects it."`
	Runbooks string `json:"runbooks" default:"\"\"" doc:"URL of your copy of the folder docs, for the annotation runbook_url. Empty: the project's."`
}

type dashboard struct {
	Enabled     bool   `json:"enabled" default:"false" doc:"Create it."`
	Labels      object `json:"labels" default:"{grafana_dashboard: \"1\"}" doc:"Labels by which Grafana's sidecar finds it."`
	Annotations object `json:"annotations" default:"{}" doc:"Annotations, as the folder for the sidecar."`
}
