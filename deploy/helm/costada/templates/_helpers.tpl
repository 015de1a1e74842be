{{/* Templates that several objects share. */}}

{{- define "costada.name" -}}
{{- $name := .Release.Name -}}
{{- if not (contains "costada" $name) }}{{ $name = printf "%s-costada" $name }}{{ end -}}
{{- $name | trunc 50 | trimSuffix "-" -}}
{{- end }}

{{/* Called with a list of the root and the name of the component. */}}
{{- define "costada.selector" -}}
app.kubernetes.io/name: costada
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "costada.metadata" -}}
name: {{ include "costada.name" (index . 0) }}-{{ index . 1 }}
labels:
  {{- include "costada.selector" . | nindent 2 }}
  app.kubernetes.io/version: {{ (index . 0).Chart.AppVersion | quote }}
  app.kubernetes.io/managed-by: {{ (index . 0).Release.Service }}
  helm.sh/chart: costada-{{ (index . 0).Chart.Version }}
{{- end }}

{{- define "costada.pod" -}}
automountServiceAccountToken: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end }}

{{- define "costada.container" -}}
image: {{ .Values.image.repository }}@{{ .Values.image.digest }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{- define "costada.certificateVariables" -}}
- {name: DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION, value: "true"}
- {name: DASK_DISTRIBUTED__COMM__TLS__CA_FILE, value: /certificates/cluster.pem}
{{- range . }}
- {name: DASK_DISTRIBUTED__COMM__TLS__{{ . }}__CERT, value: /certificates/cluster.pem}
- {name: DASK_DISTRIBUTED__COMM__TLS__{{ . }}__KEY, value: /certificates/cluster.key}
{{- end }}
{{- end }}

{{- define "costada.mounts" -}}
- {name: certificates, mountPath: /certificates, readOnly: true}
- {name: scratch, mountPath: /tmp, subPath: tmp}
- {name: scratch, mountPath: /home/costada, subPath: home}
{{- end }}

{{- define "costada.volumes" -}}
- name: certificates
  secret: {secretName: {{ .Values.certificates }}, defaultMode: 0440}
- name: scratch
  emptyDir: {sizeLimit: {{ .Values.scratch }}}
{{- end }}

{{/* Scheduler and workers answer on their own address only. */}}
{{- define "costada.isHealthy" -}}
exec:
  command:
    - python
    - -c
    - import urllib.request as r; r.urlopen('http://127.0.0.1:8787/health', timeout=4)
periodSeconds: 10
timeoutSeconds: 5
failureThreshold: 6
{{- end }}

{{/* Of servers, which answer on the address of their pod. */}}
{{- define "costada.probes" -}}
startupProbe:
  httpGet: {path: /live, port: http}
  periodSeconds: 3
  failureThreshold: 40
livenessProbe:
  httpGet: {path: /live, port: http}
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /ready, port: http}
  timeoutSeconds: 5
{{- end }}
