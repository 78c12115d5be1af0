{{- define "deltarouter.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "deltarouter.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "deltarouter.name" . -}}
{{- /* 52 characters: the names of pods and their revisions are longer. */ -}}
{{- ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "deltarouter.selectorLabels" -}}
app.kubernetes.io/name: {{ include "deltarouter.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- /* The workers have another name, so that no selector of the routers finds them. */ -}}
{{- define "deltarouter.workerSelectorLabels" -}}
app.kubernetes.io/name: {{ include "deltarouter.name" . | trunc 56 | trimSuffix "-" }}-worker
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "deltarouter.labels" -}}
{{ include "deltarouter.selectorLabels" . }}
{{ include "deltarouter.releaseLabels" . }}
{{- end -}}

{{- define "deltarouter.workerLabels" -}}
{{ include "deltarouter.workerSelectorLabels" . }}
{{ include "deltarouter.releaseLabels" . }}
{{- end -}}

{{- define "deltarouter.releaseLabels" -}}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "deltarouter.serviceAccountName" -}}
{{- default (ternary (include "deltarouter.fullname" .) "default" .Values.serviceAccount.create) .Values.serviceAccount.name -}}
{{- end -}}

{{- define "deltarouter.configMapName" -}}
{{- default (include "deltarouter.fullname" .) .Values.existingConfigMap -}}
{{- end -}}

{{- define "deltarouter.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{- /* The configuration with what the chart knows, as YAML. */ -}}
{{- define "deltarouter.config" -}}
{{- $listen := dict "probes" (printf ":%d" (int .Values.probesPort)) "api" "127.0.0.1:8484" -}}
{{- if .Values.access.enabled -}}
{{- $tls := dict "cert" (dict "file" "/tls/tls.crt") "key" (dict "file" "/tls/tls.key") -}}
{{- with .Values.access.clientCA -}}
{{- $_ := set $tls "clientCA" (dict "file" (printf "/tls/%s" .)) -}}
{{- end -}}
{{- $listen = merge (dict "api" (printf ":%d" (int .Values.access.port)) "access" "kubernetes" "tls" $tls) $listen -}}
{{- end -}}
{{- /* The router rejects the folder of an emptyDir itself, which every user may write to. */ -}}
{{- $dir := ternary "/var/lib/deltarouter/state" "/var/lib/deltarouter" (or .Values.state.emptyDir .Values.fleet.enabled) -}}
{{- $known := dict "version" 1 "state" (dict "dir" $dir) "listen" $listen -}}
{{- $fleet := dict -}}
{{- with .Values.fleet.credsKey -}}
{{- $_ := set $fleet "nats" (dict "credentials" (dict "creds" (dict "file" (printf "/nats/%s" .)))) -}}
{{- end -}}
{{- if .Values.fleet.keysSecret -}}
{{- $_ := set $fleet "keys" (dict "members" (dict "file" "/keys/members") "workers" (dict "file" "/keys/workers")) -}}
{{- end -}}
{{- if $fleet -}}
{{- $_ := set $known "fleet" $fleet -}}
{{- end -}}
{{- $config := merge (deepCopy .Values.config) $known -}}
{{- if ne .Values.fleet.enabled (hasKey .Values.config "fleet") -}}
{{- fail "config.fleet and fleet.enabled belong together: set both, or neither" -}}
{{- end -}}
{{- if and .Values.fleet.credsKey (not .Values.fleet.natsSecret) -}}
{{- fail "set fleet.natsSecret to the name of the Secret with the key of fleet.credsKey" -}}
{{- end -}}
{{- if not (hasSuffix (printf ":%d" (int .Values.probesPort)) (toString $config.listen.probes)) -}}
{{- fail (printf "config.listen.probes is %q, but probesPort is %d: leave config.listen.probes out" $config.listen.probes (int .Values.probesPort)) -}}
{{- end -}}
{{- if and .Values.access.enabled (ne (toString $config.listen.api) (printf ":%d" (int .Values.access.port))) -}}
{{- fail (printf "config.listen.api is %q, but access.port is %d: leave config.listen.api out" $config.listen.api (int .Values.access.port)) -}}
{{- end -}}
{{- toYaml $config -}}
{{- end -}}

{{- /* The port of listen.api; empty: it is a socket, or the chart does not know it. */ -}}
{{- define "deltarouter.apiPort" -}}
{{- if .Values.access.enabled -}}
{{- .Values.access.port -}}
{{- else if not .Values.existingConfigMap -}}
{{- $api := toString (include "deltarouter.config" . | fromYaml).listen.api -}}
{{- if not (hasPrefix "unix:" $api) -}}
{{- regexFind "[0-9]+$" $api -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* The environment and the files of the router, for its container and for helm test. */ -}}
{{- define "deltarouter.env" -}}
env:
  - {name: DELTAROUTER_CONFIG, value: /etc/deltarouter}
  - {name: POD_NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
  - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
  - {name: POD_UID, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}
  {{- if .Values.modules.credentialsSecret }}
  - {name: DOCKER_CONFIG, value: /registries}
  {{- end }}
  {{- with .Values.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .Values.extraEnvFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "deltarouter.mounts" -}}
- {name: config, mountPath: /etc/deltarouter, readOnly: true}
{{- if .Values.access.enabled }}
- {name: tls, mountPath: /tls, readOnly: true}
{{- end }}
{{- if .Values.fleet.natsSecret }}
- {name: nats, mountPath: /nats, readOnly: true}
{{- end }}
{{- if .Values.fleet.keysSecret }}
- {name: keys, mountPath: /keys, readOnly: true}
{{- end }}
{{- if .Values.modules.credentialsSecret }}
- {name: registries, mountPath: /registries, readOnly: true}
{{- end }}
{{- range .Values.secretFiles }}
- {name: {{ printf "secret-%s" .name }}, mountPath: {{ printf "/secrets/%s" .name }}, readOnly: true}
{{- end }}
{{- range .Values.plugins }}
- {name: {{ printf "plugin-%s" .name }}, mountPath: {{ printf "/plugins/%s" .name }}, readOnly: true}
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* With .worker, those of a worker, which gets no key of the members. */ -}}
{{- define "deltarouter.volumes" -}}
- name: config
  configMap: {name: {{ include "deltarouter.configMapName" . }}}
{{- if .Values.access.enabled }}
- name: tls
  secret: {secretName: {{ required "set access.tlsSecret to the name of a Secret with tls.crt and tls.key" .Values.access.tlsSecret }}, defaultMode: 0440}
{{- end }}
{{- $nats := .Values.fleet.natsSecret }}
{{- if .worker }}{{ $nats = default $nats .Values.workers.natsSecret }}{{ end }}
{{- with $nats }}
- name: nats
  secret: {secretName: {{ . }}, defaultMode: 0440}
{{- end }}
{{- with .Values.fleet.keysSecret }}
- name: keys
  secret:
    secretName: {{ . }}
    defaultMode: 0440
    {{- if $.worker }}
    items: [{key: workers, path: workers}]
    {{- end }}
{{- end }}
{{- with .Values.modules.credentialsSecret }}
- name: registries
  secret:
    secretName: {{ . }}
    defaultMode: 0440
    items: [{key: .dockerconfigjson, path: config.json}]
{{- end }}
{{- range .Values.secretFiles }}
- name: {{ printf "secret-%s" .name }}
  secret: {secretName: {{ .secret }}, defaultMode: 0440}
{{- end }}
{{- range .Values.plugins }}
- name: {{ printf "plugin-%s" .name }}
  {{- toYaml .volume | nindent 2 }}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* Different nodes are preferred for the pods with the given labels. */ -}}
{{- define "deltarouter.spread" -}}
podAntiAffinity:
  preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 100
      podAffinityTerm:
        topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels:
            {{- . | nindent 12 }}
{{- end -}}

{{- /* A size in bytes, as a number; empty: it has an exponent, and is not compared. */ -}}
{{- define "deltarouter.bytes" -}}
{{- $unit := regexFind "[A-Za-z]*$" . -}}
{{- $units := dict "" 1 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "Pi" 1125899906842624 -}}
{{- if hasKey $units $unit -}}
{{- mulf (trimSuffix $unit .) (get $units $unit) | int64 -}}
{{- end -}}
{{- end -}}

{{- /* Kubernetes refuses other volumes of a StatefulSet, with a text that has no remedy. helm template
  and a first installation find no StatefulSet. */ -}}
{{- define "deltarouter.sameVolume" -}}
{{- $name := include "deltarouter.fullname" . -}}
{{- with lookup "apps/v1" "StatefulSet" .Release.Namespace $name -}}
{{- $again := printf "kubectl -n %s delete statefulset %s --cascade=orphan, which keeps the pod and the volume, and repeat this command" $.Release.Namespace $name -}}
{{- $claims := default list .spec.volumeClaimTemplates -}}
{{- $wanted := not (or $.Values.state.emptyDir $.Values.fleet.enabled) -}}
{{- if ne $wanted (gt (len $claims) 0) -}}
{{- fail (printf "state.emptyDir or fleet.enabled changes, and Kubernetes does not change the volumes of a StatefulSet: run %s" $again) -}}
{{- else if $wanted -}}
{{- $has := (first $claims).spec -}}
{{- if and $.Values.state.storageClassName (ne $.Values.state.storageClassName (toString $has.storageClassName)) -}}
{{- fail (printf "state.storageClassName is %q, but the volume has %q, which does not change: set it back, or see State in docs/OPERATIONS.md" $.Values.state.storageClassName (toString $has.storageClassName)) -}}
{{- end -}}
{{- $size := toString $.Values.state.size -}}
{{- $old := toString $has.resources.requests.storage -}}
{{- $bytes := include "deltarouter.bytes" $size -}}
{{- if and $bytes (ne $bytes (include "deltarouter.bytes" $old)) -}}
{{- fail (printf "state.size is %s, but the StatefulSet has %s, and Kubernetes does not change it. To enlarge the volume, run kubectl -n %s patch pvc state-%s-0 -p '{\"spec\":{\"resources\":{\"requests\":{\"storage\":\"%s\"}}}}' and %s" $size $old $.Release.Namespace $name $size $again) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* Definitions that others installed are not taken over, and Helm's own text has no remedy. */ -}}
{{- define "deltarouter.ownDefinition" -}}
{{- $name := .definition.metadata.name -}}
{{- with lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" $name -}}
{{- $owner := get (default dict .metadata.annotations) "meta.helm.sh/release-name" -}}
{{- $namespace := get (default dict .metadata.annotations) "meta.helm.sh/release-namespace" -}}
{{- if not $owner -}}
{{- fail (printf "%s exists and belongs to no release: set customResourceDefinitions.create to false, or hand it over with kubectl label crd %s app.kubernetes.io/managed-by=Helm and kubectl annotate crd %s meta.helm.sh/release-name=%s meta.helm.sh/release-namespace=%s" $name $name $name $.root.Release.Name $.root.Release.Namespace) -}}
{{- else if or (ne $owner $.root.Release.Name) (ne $namespace $.root.Release.Namespace) -}}
{{- fail (printf "%s belongs to the release %s in the namespace %s: set customResourceDefinitions.create to false here" $name $owner $namespace) -}}
{{- end -}}
{{- end -}}
{{- end -}}
