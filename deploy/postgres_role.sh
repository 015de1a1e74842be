# Creates the role of CostAda in the database of a new container: it may create its schema, and is no superuser.
psql --set ON_ERROR_STOP=1 --set "password=$POSTGRES_PASSWORD" --username postgres --dbname "$POSTGRES_DB" <<'SQL'
CREATE ROLE costada LOGIN PASSWORD :'password';
GRANT CREATE ON DATABASE :"DBNAME" TO costada;
-- The superuser can log in from within the container only.
ALTER ROLE postgres PASSWORD NULL;
SQL
